"""The CPU kernels' instruction sets, each in a process of its own: a library takes one for good."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx_iron.conformance.report import Report, from_json
from onnx_iron.kernels import cpu_path

PATHS = ("portable", "avx2", "avx512")


def other_paths() -> list[str]:
    """The paths that this processor has and this process did not take."""
    return [path for path in PATHS if path != cpu_path() and _takes(path)]


def _takes(path: str) -> bool:
    code = "from onnx_iron.kernels import cpu_path; print(cpu_path())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ONNX_IRON_CPU": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() == path


def run_in_path(path: str, arguments: Sequence[str]) -> Report:
    """What ``onnx-iron conformance`` with these arguments finds on another path.

    Raises:
        RuntimeError: it ends without a report.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "onnx_iron.tools.main", "conformance", *arguments]
        done = subprocess.run(
            [*command, "--json", str(file), "--cpu-paths", "this"],
            env=os.environ | {"ONNX_IRON_CPU": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if not file.is_file():
            raise RuntimeError(
                f"the conformance run with ONNX_IRON_CPU={path} ended with exit code "
                f"{done.returncode} and no report: {done.stderr.strip()[-2000:]}"
            )
        return from_json(file.read_text(), str(file))


def run_all(paths: Iterable[str], arguments: Sequence[str]) -> list[Report]:
    """The reports of several paths."""
    return [run_in_path(path, arguments) for path in paths]
