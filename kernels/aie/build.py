"""Builds the kernels, and the interpreter of designs, for this machine: tests.

What a build is made from names it in the cache, so that a change builds anew and nothing else does.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_DESIGNS = _HERE.parent / "designs"
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
)


class Generation(StrEnum):
    """The generations of cores that the kernels are written for."""

    AIE2 = "aie2"
    AIE2P = "aie2p"

    @property
    def arch(self) -> int:
        """What aie_api knows it by."""
        return {Generation.AIE2: 20, Generation.AIE2P: 21}[self]

    @property
    def lanes(self) -> int:
        """bfloat16 lanes of a vector."""
        return {Generation.AIE2: 16, Generation.AIE2P: 32}[self]


def cache_folder() -> Path:
    """Where builds are kept: ``ONNX_IRON_CACHE``, else ``onnx-iron`` in the user's cache."""
    if chosen := os.environ.get("ONNX_IRON_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "onnx-iron"


@functools.cache
def kernel_library(generation: Generation) -> Path:
    """The shared library of all kernels for a generation's host model, built if it isn't there.

    Raises:
        RuntimeError: no C++ compiler, or one that fails.
    """
    sources = [*sorted(_HERE.glob("*.cc")), _HERE / "host" / "library.cc"]
    headers = [*sorted(_HERE.glob("*.h")), *sorted((_HERE / "host").rglob("*.h*"))]
    flags = ["-DONNX_IRON_HOST", f"-D__AIE_ARCH__={generation.arch}"]
    flags += [f"-I{_HERE / 'host'}", f"-I{_HERE}"]
    return _build(f"kernels-{generation}", sources, headers, flags)


@functools.cache
def kernel_source(kernel: str) -> Path:
    """The source file that a kernel is in.

    Raises:
        KeyError: there is no such kernel.
    """
    entry = f"ONNX_IRON_KERNEL({kernel})\n"
    for source in sorted(_HERE.glob("*.cc")):
        if entry in source.read_text():
            return source
    raise KeyError(kernel)


@functools.cache
def interpreter_library() -> Path:
    """The shared library of the designs' interpreter, built if it isn't there.

    Raises:
        RuntimeError: no C++ compiler, or one that fails.
    """
    sources, headers = sorted(_DESIGNS.glob("*.cc")), sorted(_DESIGNS.glob("*.h"))
    return _build("interpreter", sources, headers, [f"-I{_DESIGNS}", "-ldl"])


def _build(name: str, sources: Sequence[Path], headers: Sequence[Path], flags: list[str]) -> Path:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise RuntimeError(
            f"{name}: the C++ compiler {compiler!r} is not on PATH; install g++ 11 or newer, or "
            "name another one in the environment variable CXX"
        )
    digest = hashlib.sha256(" ".join([compiler, *_FLAGS, *flags]).encode())
    for path in (*sources, *headers):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    built = cache_folder() / "kernels" / f"{name}-{digest.hexdigest()[:16]}.so"
    if built.is_file():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed into it, so that nobody loads a half of it.
    with tempfile.TemporaryDirectory(dir=built.parent, prefix=f".{name}-") as folder:
        made = Path(folder) / built.name
        command = [compiler, *_FLAGS, *map(str, sources), *flags, "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(
                f"{name}: {compiler} failed with exit code {result.returncode}; g++ 11 or newer is "
                f"expected. It said:\n{result.stderr.strip()}"
            )
        made.replace(built)
    return built
