"""``onnx-iron build-kernels``: the NPU designs that a model needs, compiled into the cache."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from onnx_iron.tools.options import Subparsers, positive

TARGETS = ("npu1", "npu2")


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "build-kernels",
        parents=[common],
        help="compile the NPU designs that a model needs",
        description="Compile the distinct designs of a model, each once, and put those of each "
        "subgraph into an image. What is there already is not built again. Prints the images.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="an .onnx file or their folder")
    parser.add_argument(
        "--target",
        choices=TARGETS,
        required=True,
        help="npu1: Phoenix and Hawk Point; npu2: Strix and Krackan",
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="designs compiled at once (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Build, and print the images' paths.

    Raises:
        RuntimeError: a tool is missing, or a design does not compile.
        OSError: a file can't be read or written.
    """
    from onnx_iron.kernels.designs import Target
    from onnx_iron.provider.devices.npu.build import build_plans, plans_of
    from onnx_iron.provider.devices.npu.toolchain import design_compiler
    from onnx_iron.provider.opening import load_models
    from onnx_iron.tools.progress import note, stage, summary

    target, began = Target(arguments.target), time.monotonic()
    compiler = design_compiler()
    with stage("Planning") as report:
        plans = []
        for role, (path, _) in load_models(arguments.model).items():
            report(0, 0, role)
            plans += plans_of(path, target, compiler)
    if not plans:
        raise ValueError(
            f"{arguments.model} has no subgraph of known shapes that onnx-iron's provider takes"
        )
    with stage("Building") as report:

        def progress(done: int, total: int, name: str) -> None:
            report(0, 0, f"design {done} of {total}, {name}")

        outcome = build_plans(plans, target, compiler, arguments.jobs, progress)
    for reason, count in outcome.refused.items():
        note(f"{count} steps stay with the CPU: {reason}")
    there = len(outcome.designs) - outcome.built - len(outcome.failed)
    rows = [
        ("designs", f"{len(outcome.designs)} distinct, of {sum(plan.runs for plan in plans)} runs"),
        ("built now", f"{outcome.built} in {time.monotonic() - began:.1f} s"),
        ("were there", str(there)),
        ("failed", str(len(outcome.failed))),
        ("images", str(len(set(outcome.images)))),
    ]
    summary(f"{arguments.model} for {target}", rows)
    if outcome.failed:
        first = next(iter(outcome.failed.values()))
        raise RuntimeError(f"{len(outcome.failed)} designs do not compile; the first: {first}")
    for path in dict.fromkeys(outcome.images):
        print(path)
