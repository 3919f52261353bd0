"""``onnx-iron doctor``: whether this machine can run models on its NPU, and what it lacks."""

from __future__ import annotations

import argparse
from pathlib import Path

from onnx_iron.tools.options import Subparsers


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        parents=[common],
        help="look at driver, permissions, XRT, and what else the NPU needs",
        description="Look at everything that running on the NPU needs, and say what to do about "
        "what is missing. Exit code 1 where the NPU can't be used.",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the findings.

    Raises:
        RuntimeError: the NPU can't be used.
    """
    from onnx_iron.provider.devices.npu.examine import examine

    found = list(examine(Path("/")))
    for finding in found:
        print(finding)
    missing = [finding.what for finding in found if finding.needed and not finding.good]
    if missing:
        raise RuntimeError(f"the NPU can't be used: {', '.join(missing)}; the CPU runs models")
