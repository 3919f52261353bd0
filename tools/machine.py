"""The machine that figures are from, and what it can do at the most, measured in the same run."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnx_iron import __version__
from onnx_iron.native import library

# More than the caches of the processors that this runs on.
BUFFER_BYTES = 256 << 20
# What measures seconds: a benchmark may take the processor's.
clock: Callable[[], float] = time.perf_counter
STEPS = 2_000_000
_PACKAGES = ("onnxruntime", "onnx", "numpy", "torch", "llama_cpp_python", "onnxruntime-genai")


def describe() -> dict[str, Any]:
    """Date, command, processor and versions, for a report's head."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    path = library().onnx_iron_cpu_path()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "onnx-iron": __version__,
        "cpu_path": (path or b"").decode(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def resident_bytes() -> int:
    """The memory that this process has in use. A file's page that several sessions map counts once
    ("Pss", where no other process maps it), and not for each of them as in "Rss"."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@dataclass(frozen=True)
class Spread:
    """Median, lower and upper quartile, best (the largest) of some figures."""

    median: float
    low: float
    high: float
    best: float

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread:
        """Of at least one figure."""
        sorted_figures = sorted(figures)
        if len(sorted_figures) == 1:
            return cls(*4 * sorted_figures)
        low, median, high = statistics.quantiles(sorted_figures, n=4, method="inclusive")
        return cls(median, low, high, sorted_figures[-1])


@dataclass
class Limits:
    """What so many threads reach, sampled again and again beside what is held against it.

    Attributes:
        read: bytes a second from memory.
        float32, bfloat16: multiplications and additions a second, in registers.
    """

    threads: int
    read: list[float] = field(default_factory=list)
    float32: list[float] = field(default_factory=list)
    bfloat16: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Ones, not zeros: the kernel may give all pages of zeros the same memory.
        self._data = np.ones(BUFFER_BYTES, np.uint8)
        self._pool = ThreadPoolExecutor(self.threads)

    def sample(self, rounds: int = 1) -> None:
        """Measure each once more, or several times."""
        part = self._data.nbytes // self.threads
        starts = [self._data.ctypes.data + part * i for i in range(self.threads)]
        for _ in range(rounds):
            self.read.append(
                self._rate(lambda at: library().onnx_iron_limit_read(at, part) and part, starts)
            )
            for bfloat16, rates in ((False, self.float32), (True, self.bfloat16)):
                rates.append(self._rate(self._products, [bfloat16] * self.threads))

    def _products(self, bfloat16: bool) -> float:
        return float(library().onnx_iron_limit_products(bfloat16, STEPS))

    def _rate(self, work: Callable[[Any], float], arguments: Sequence[Any]) -> float:
        begin = clock()
        done = sum(self._pool.map(work, arguments))
        return done / (clock() - begin)

    def peak(self, dtype: str) -> float:
        """The median of a dtype's operations a second; float32's for what is not bfloat16."""
        return statistics.median(self.bfloat16 if dtype == "bfloat16" else self.float32)

    def bandwidth(self) -> float:
        """The median of bytes read a second."""
        return statistics.median(self.read)

    def to_dict(self) -> dict[str, Any]:
        """Threads, and the spread of each limit, for a report."""
        found: dict[str, Any] = {"threads": self.threads}
        for name in ("read", "float32", "bfloat16"):
            found[name] = vars(Spread.of(getattr(self, name)))
        return found

    def __str__(self) -> str:
        texts = [
            f"{found.median / 1e9:.{digits}f} ({found.low / 1e9:.{digits}f}-"
            f"{found.high / 1e9:.{digits}f})"
            for found, digits in (
                (Spread.of(self.read), 1),
                (Spread.of(self.float32), 0),
                (Spread.of(self.bfloat16), 0),
            )
        ]
        return (
            f"limits of {self.threads} threads, medians (quartiles): reads {texts[0]} GB/s, "
            f"multiplies and adds {texts[1]} GFLOP/s in float32, {texts[2]} in bfloat16"
        )
