"""``onnx-iron estimate``: what a model would take on an NPU, from published costs."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_iron.tools.build_kernels import TARGETS
from onnx_iron.tools.options import Subparsers

if TYPE_CHECKING:
    from onnx_iron.kernels.designs import Design
    from onnx_iron.provider.devices.npu.work import Plan, Work

# Microseconds on Strix, as others published them in the repositories of mlir-aie (a run of its own)
# and xdna-driver (one run in a list, and each of eight). Another design than before: 39.
DISPATCH_US = (45.0, 60.0)
RUN_LIST_US = {1: 56.0, 8: 33.0}
SWITCH_US = 39.0
# A step of a run that is several, after the first: 3 to 18 published for such steps. Ours writes
# some 15 words to each core, and waits for the step before.
STEP_US = (3.0, 18.0)
# Products in bfloat16 on XDNA 2, arXiv 2512.13282. XDNA has half the columns and half the lanes.
FLOPS = {"npu2": 14.7e12, "npu1": 14.7e12 / 4}
# Bytes a second between memory and the array. No source: a share of LPDDR5X's 120e9.
BANDWIDTH = 50e9

ASSUMPTIONS = (
    "Nothing here was measured on an NPU. Assumed:",
    f"  a run dispatched by itself costs {DISPATCH_US[0]:.0f} to {DISPATCH_US[1]:.0f} us (their "
    "middle is taken); published for Strix",
    f"  a run in a run list costs {RUN_LIST_US[1]:.0f} us if it is alone, {RUN_LIST_US[8]:.0f} us "
    "from eight on; published for Strix",
    f"  a run of another configuration than the one before costs {SWITCH_US:.0f} us more",
    f"  a step in a run, after the first, costs {STEP_US[0]:.0f} to {STEP_US[1]:.0f} us (their "
    "middle is taken); published",
    "  a run takes as long as its operations or its bytes, whichever is more: {flops:.1f} TFLOP/s "
    "(published for matrix products, optimistic for all else), {bandwidth:.0f} GB/s (assumed)",
    "  each operand moves once; where a step's columns have unequal parts, it takes as long as if "
    "all had the largest; the steps of the host count nothing",
)


@dataclass
class Line:
    """An operator's runs in a call, added up."""

    runs: int = 0
    designs: int = 0
    bytes: int = 0
    flops: int = 0
    busy_us: float = 0.0

    def add(self, other: Line) -> None:
        """Add another's."""
        self.runs += other.runs
        self.designs += other.designs
        self.bytes += other.bytes
        self.flops += other.flops
        self.busy_us += other.busy_us


@dataclass
class Estimate:
    """A model's call.

    Attributes:
        lines: by operator, or by the operators that are one step.
        host: steps that the host does, by operator.
        switches: runs of another configuration than the one before.
        steps: of the NPU, of which neighbours of one configuration are one run.
        run_lists: submissions where a subgraph goes out as a whole.
        each_us, list_us: the whole call, a dispatch a node, and a run list a subgraph.
    """

    lines: dict[str, Line]
    host: dict[str, int]
    switches: int
    steps: int
    run_lists: int
    each_us: float
    list_us: float

    @property
    def total(self) -> Line:
        """All operators."""
        total = Line()
        for line in self.lines.values():
            total.add(line)
        return total


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "estimate",
        parents=[common],
        help="predict what a model takes on an NPU, from published costs",
        description="Count the bytes, operations, runs and design switches of a model's calls, and "
        "predict their time from published costs. No NPU is needed, and none is asked.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="an .onnx file or their folder")
    parser.add_argument(
        "--target", choices=TARGETS, required=True, help="npu1: Phoenix; npu2: Strix and Krackan"
    )
    parser.add_argument(
        "--bandwidth",
        type=gigabytes,
        default=BANDWIDTH,
        metavar="GB/s",
        help=f"between memory and the array (default: {BANDWIDTH / 1e9:.0f})",
    )
    parser.set_defaults(run=run)


def gigabytes(text: str) -> float:
    """Parse gigabytes a second, as argparse's ``type``; returns bytes."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value * 1e9


def run(arguments: argparse.Namespace) -> None:
    """Print a table for each of the model's files, and the assumptions.

    Raises:
        ValueError: the model has nothing for an NPU.
    """
    from onnx_iron.kernels.designs import Target
    from onnx_iron.provider.devices.npu.build import plans_of
    from onnx_iron.provider.devices.npu.toolchain import design_compiler
    from onnx_iron.provider.opening import model_files

    target = arguments.target
    for path in model_files(arguments.model).values():
        plans = plans_of(path, Target(target), design_compiler())
        if not plans:
            raise ValueError(f"{path} has no subgraph of known shapes that the provider takes")
        print(report(path.name, estimate(plans, FLOPS[target], arguments.bandwidth)))
    for line in ASSUMPTIONS:
        print(line.format(flops=FLOPS[target] / 1e12, bandwidth=arguments.bandwidth / 1e9))


def estimate(plans: Sequence[Plan], flops: float, bandwidth: float) -> Estimate:
    """Count and predict a call of all subgraphs."""
    lines: dict[str, Line] = {}
    host: dict[str, int] = {}
    seen: set[str] = set()
    before, switches, steps, run_lists, each_us, list_us = "", 0, 0, 0, 0.0, 0.0
    for plan in plans:
        for segment in plan.segments:
            if not segment.on_npu:
                for work in segment.work:
                    host[work.step.op.name] = host.get(work.step.op.name, 0) + 1
                continue
            run_lists += 1
            for run in segment.runs:
                switched = SWITCH_US if run.artifact.configuration != before else 0.0
                switches += run.artifact.configuration != before
                before = run.artifact.configuration
                busy_us = (len(run.work) - 1) * sum(STEP_US) / 2
                for number, work in enumerate(run.work):
                    assert work.artifact is not None
                    line = cost(plan, work, flops, bandwidth)
                    line.runs = int(number == 0)
                    line.designs = int(work.artifact.key not in seen)
                    seen.add(work.artifact.key)
                    lines.setdefault(operators(work), Line()).add(line)
                    busy_us += line.busy_us
                steps += len(run.work)
                each_us += sum(DISPATCH_US) / 2 + switched + busy_us
                list_us += in_list_us(len(segment.runs)) + switched + busy_us
    return Estimate(lines, host, switches, steps, run_lists, each_us, list_us)


def operators(work: Work) -> str:
    """The operators that a step is, in order, each once."""
    return "+".join(dict.fromkeys(part.op.name for part in work.parts))


def in_list_us(runs: int) -> float:
    """What each run of a list costs, between the two lengths that are published."""
    share = (min(max(runs, 1), 8) - 1) / 7
    return RUN_LIST_US[1] + share * (RUN_LIST_US[8] - RUN_LIST_US[1])


def cost(plan: Plan, work: Work, flops: float, bandwidth: float) -> Line:
    """A step's bytes and operations, and how long the array is busy with them."""
    from onnx_iron.operators import Op

    specs = plan.lowering.specs
    assert work.artifact is not None
    count, moved = 0, sum(specs[name].bytes for name in work.operands)
    for part in work.parts:
        assert isinstance(part.op, Op)
        shapes = {
            taken.name: specs[name].shape
            for taken, name in zip(part.op.inputs, part.inputs, strict=False)
            if name is not None
        }
        output = specs[part.outputs[0]]
        count += part.op.flops(shapes, output.shape)
        elements = part.op.elements_moved(shapes, output.shape)
        if elements is not None:
            moved = elements * output.dtype.itemsize
    slowest = moved
    if work.artifact.design.told:
        moved, slowest = walked(work.artifact.design)
    busy = max(count / flops, slowest / bandwidth)
    return Line(runs=1, bytes=moved, flops=count, busy_us=1e6 * busy)


def walked(design: Design) -> tuple[int, int]:
    """The bytes that a design's streams move, and how many they were if all columns moved as many
    as the one that moves most."""
    shared, columns = 0, [0] * len(design.columns)
    for stream in design.streams:
        if stream.broadcast:
            shared += stream.bytes
            continue
        for column, trips in enumerate(design.columns):
            columns[column] += stream.bytes * math.prod(trips[: stream.level])
    return shared + sum(columns), shared + max(columns) * len(columns)


def report(name: str, made: Estimate) -> str:
    """The table that a person reads."""
    lines = [f"{name:32}{'runs':>6}{'designs':>9}{'KiB':>11}{'MFLOP':>10}{'array us':>11}"]
    for op, line in [*sorted(made.lines.items()), ("in all", made.total)]:
        lines.append(
            f"  {op:30}{line.runs:6}{line.designs:9}{line.bytes / 1024:11.1f}"
            f"{line.flops / 1e6:10.2f}{line.busy_us:11.1f}"
        )
    if made.host:
        steps = ", ".join(f"{count} {op}" for op, count in sorted(made.host.items()))
        lines.append(f"  on the host: {steps}")
    runs = made.total.runs
    lines += [
        f"  steps: {made.steps}, in {runs} runs; switches of configuration: {made.switches}",
        f"  a dispatch a run:       {runs:5} submissions  {made.each_us / 1000:9.2f} ms",
        f"  a run list a subgraph:  {made.run_lists:5} submissions  {made.list_us / 1000:9.2f} ms",
    ]
    return "\n".join(lines)
