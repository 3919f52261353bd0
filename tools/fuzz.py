"""``onnx-iron fuzz``: hostile models and tensors, on every way that we run a model."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from onnx_iron.tools.options import Subparsers, positive


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "fuzz",
        parents=[common],
        help="try models and tensors that are wrong on purpose",
        description="Change small models and the tensors of a call by chance, open and run each on "
        "plain onnxruntime, IronExecutionProvider, onnx_iron.Session and the custom ops, in "
        "processes with bounds on memory and time. A crash, a hang, a huge allocation, an error "
        "without sense and a result unlike plain onnxruntime's are faults; with one, the exit code "
        "is 1. The cases follow from the seed.",
    )
    parser.add_argument("--cases", type=positive, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first case's number (default: 0)")
    parser.add_argument("--jobs", type=positive, default=1, help="processes at once (default: 1)")
    parser.add_argument(
        "--library",
        type=Path,
        metavar="FILE",
        help="our native library, such as one built with sanitizers (ONNX_IRON_SANITIZE=ON)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="write the case of each kind of fault there"
    )
    parser.add_argument(
        "--replay",
        type=Path,
        nargs="+",
        metavar="FILE.zip",
        help="run cases that --keep wrote, instead of new ones",
    )
    parser.add_argument(
        "--stricter", action="store_true", help="list what we refuse and plain onnxruntime runs"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        ValueError: there is a fault.
        OSError: a file can't be read or written.
    """
    if arguments.library is not None:
        if not arguments.library.is_file():
            raise FileNotFoundError(f"--library {arguments.library}: there is no such file")
        os.environ["ONNX_IRON_LIBRARY"] = str(arguments.library.resolve())
    from onnx_iron.conformance.hostile.search import search

    if arguments.replay is not None:
        return replay(arguments.replay)
    begun = time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.cases)
    found = search(seeds, arguments.jobs, _progress, arguments.keep)
    print(found.table())
    print(f"{arguments.cases} cases in {time.monotonic() - begun:.0f} s")
    if arguments.stricter:
        for fault in found.stricter.values():
            print(f"\nstricter: {fault.plan}: {fault.case}\n  {fault.judged.words}")
    for kind, fault in found.faults.items():
        print(f"\nFAULT ({found.alike[kind]} cases alike) {fault.plan}: {fault.case}")
        print(f"  {fault.judged.stage}: {fault.judged.words}")
        print(f"  onnx-iron fuzz --seed {fault.plan.seed} --cases 1")
    if found.faults:
        raise ValueError(f"{len(found.faults)} kinds of faults in {found.alike.total()} cases")


def replay(files: list[Path]) -> None:
    """Run kept cases.

    Raises:
        ValueError: one is a fault.
    """
    from onnx_iron.conformance.hostile.case import load
    from onnx_iron.conformance.hostile.verdict import Verdict
    from onnx_iron.conformance.hostile.worker import Worker

    worker, faults = Worker(), 0
    for file in files:
        case = load(file)
        print(f"{file.name}: {case}")
        for judged in worker.run(case):
            faults += judged.verdict is Verdict.FAULT
            print(f"  {judged.stage}: {judged.verdict.value} {judged.words}".rstrip())
    worker.close()
    if faults:
        raise ValueError(f"{faults} faults in {len(files)} cases")


def _progress(done: int, faults: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} cases, {faults} kinds of faults ", end="", file=sys.stderr, flush=True)
    elif done % 1000 == 0:
        print(f"{done} cases, {faults} kinds of faults", file=sys.stderr)
