"""Time and peak memory of exporting a Hugging Face folder of a real model's shape.

``python -m onnx_iron.tools.bench.export [--shapes LFM2-350M,...] [--dtype float32] [--folder DIR]``

The folder is made of random weights where ``--folder`` names none. Each export runs in a process of
its own, whose peak of resident memory is read from the kernel. The peer copies the checkpoint's
files and no more: what a disk takes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from onnx_iron.tools.bench.measure import Report, parser_of
from onnx_iron.tools.bench.random_models import SHAPES, TINY, write_folder

_EXPORT = """
import json, sys, time
from pathlib import Path
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
source, target, dtype, context, chunk = sys.argv[1:]
began = time.perf_counter()
report = export_checkpoint(
    open_checkpoint(source), target, dtype=dtype, context=int(context), chunk=int(chunk)
)
took = time.perf_counter() - began
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(json.dumps({"seconds": took, "peak": peak, "bytes": report.total_bytes}))
"""


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line a shape."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--shapes", default="LFM2-350M", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--folder", type=Path, help="a Hugging Face folder to export instead")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=64)
    arguments = parser.parse_args(given)
    names = [arguments.folder.name] if arguments.folder else arguments.shapes.split(",")
    if not (arguments.folder or arguments.quick) and (unknown := set(names) - {*SHAPES}):
        raise ValueError(f"--shapes has {sorted(unknown)}, expected some of {', '.join(SHAPES)}")
    report = Report(arguments)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            source = arguments.folder or Path(scratch) / "in"
            if arguments.folder is None:
                write_folder(source, TINY if arguments.quick else SHAPES[name])
            _measure(report, name, source, Path(scratch), arguments)
    report.end()


def _measure(
    report: Report, name: str, source: Path, scratch: Path, arguments: argparse.Namespace
) -> None:
    exported: list[dict[str, Any]] = []

    def ours() -> float:
        target = scratch / "out"
        shutil.rmtree(target, ignore_errors=True)
        options = [source, target, arguments.dtype, arguments.context, arguments.chunk]
        command = [sys.executable, "-c", _EXPORT, *map(str, options)]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        exported.append(json.loads(made.stdout))
        return float(exported[-1]["seconds"])

    def copy() -> float:
        target = scratch / "copy"
        shutil.rmtree(target, ignore_errors=True)
        began = time.perf_counter()
        shutil.copytree(source, target)
        return time.perf_counter() - began

    ours_name = f"onnx-iron {arguments.dtype}"
    report.compare(name, {ours_name: ours, "copy": copy}, "copy", unit="s", exported=exported)
    bound = 1.1 * exported[-1]["bytes"] + 300e6
    last = exported[-1]
    print(
        f"{'':34}{last['bytes'] / 1e6:.0f} MB, peak memory {last['peak'] / 1e6:.0f} MB "
        f"({last['peak'] / bound:.2f} of exported + 10 % + 300 MB)"
    )


if __name__ == "__main__":
    main()
