"""Runs mypy over a checkout: ``python tools/check_types.py``.

The four folders are one package when they are installed, so that is how mypy reads them here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("provider", "kernels", "tools")


def main() -> int:
    """Check, and print what is wrong by its path in the checkout; 0 where nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "onnx_iron"
        leave = shutil.ignore_patterns("__pycache__", "*.cc", "*.h")
        shutil.copytree(ROOT / "onnx_iron", package, ignore=leave)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, package / name, ignore=leave)
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
        cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
        checked = subprocess.run(
            [*command, *cache, "-p", "onnx_iron"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    for line in checked.stdout.splitlines():
        moved = line.startswith(tuple(f"onnx_iron/{name}/" for name in FOLDERS))
        print(line.removeprefix("onnx_iron/") if moved else line)
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
