"""``onnx-iron estimate``: what a model would take on an NPU, from published costs."""

from __future__ import annotations

import argparse
import functools
import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_iron.tools.build_kernels import TARGETS
from onnx_iron.tools.estimated import Estimate, Line
from onnx_iron.tools.options import CHUNK, CONTEXT, Subparsers, positive

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
# Products in bfloat16 on all cores, arXiv 2512.13282.
FLOPS = {"npu2": 14.7e12, "npu1": 3.1e12}
# A DMA channel of a column moves 4 bytes a cycle, at the highest clocks in amdxdna's tables.
CHANNEL = {"npu2": 4 * 1.8e9, "npu1": 4 * 1.6e9}
# Until the next transfers begin when a phase's are awaited. The least of what others measured for a
# step of a fused run, 3 to 18.
PHASE_US = 3.0
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
    "on all cores (published for matrix products, arXiv 2512.13282, optimistic for all else), "
    "{bandwidth:.0f} GB/s (assumed), of them {channel:.1f} by one channel of a column at the most",
    "  where a step's columns have unequal parts, it takes as long as if all had the largest, and "
    f"each time that transfers are awaited costs {PHASE_US:.0f} us more; the steps of the host "
    "count nothing",
)


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "estimate",
        parents=[common],
        help="predict what a model takes on an NPU, from published costs",
        description="Count the bytes, operations, runs and design switches of a model's calls, and "
        "predict their time from published costs. No NPU is needed, and none is asked.",
    )
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="an .onnx file or their folder, or a Hugging Face config.json or its folder: then "
        "the model is made with weights of zeros, as large as its own, in a temporary folder",
    )
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
    parser.add_argument(
        "--filled",
        type=lengths,
        metavar="N,...",
        help="tokens in the context, for each of which a call is predicted (default: an eighth of "
        "it, half, all)",
    )
    for option, what, usual in (
        ("--context", "tokens that the cache holds", CONTEXT),
        ("--chunk", "tokens of the prompt that one run takes", CHUNK),
    ):
        parser.add_argument(
            option,
            type=positive,
            metavar="N",
            help=f"of a config.json: {what} (default: {usual}, or less where the model takes less)",
        )
    parser.add_argument("--json", action="store_true", help="print it for machines")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.png",
        help="draw where a call's time goes (needs matplotlib: pip install 'onnx-iron[plot]')",
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


def lengths(text: str) -> list[int]:
    """Parse numbers of entries, separated by commas, as argparse's ``type``."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers above 0, as 64,512")
    return found


def run(arguments: argparse.Namespace) -> None:
    """Print a table for each of the model's files, and the assumptions.

    Raises:
        ValueError: the model has nothing for an NPU.
        ModuleNotFoundError: a picture is asked for, and matplotlib is not installed.
    """
    if arguments.plot is not None:
        from onnx_iron.tools.estimate_picture import draw
    from onnx_iron.kernels.designs import Target
    from onnx_iron.provider.devices.npu.build import plans_of
    from onnx_iron.provider.devices.npu.toolchain import design_compiler

    target = arguments.target
    made: dict[str, Estimate] = {}
    with models_of(arguments) as files:
        for path in files:
            plans = plans_of(path, Target(target), design_compiler())
            if not plans:
                raise ValueError(f"{path} has no subgraph of known shapes that the provider takes")
            assumed = FLOPS[target], arguments.bandwidth
            made[path.name] = one = estimate(plans, *assumed)
            if context := counted_context(plans):
                some = arguments.filled or [-(-context // 8), -(-context // 2), context]
                one.filled_us = {n: estimate(plans, *assumed, n).list_us for n in some}
    rates = {"flops": FLOPS[target] / 1e12, "bandwidth": arguments.bandwidth / 1e9}
    rates["channel"] = CHANNEL[target] / 1e9
    said = [line.format(**rates) for line in ASSUMPTIONS]
    if arguments.json:
        calls = {name: asdict(one) | {"total": asdict(one.total)} for name, one in made.items()}
        print(json.dumps({"target": target, "assumed": said, "calls": calls}, indent=2))
    else:
        print("\n".join([*(report(name, one) for name, one in made.items()), *said]))
    if arguments.plot is not None:
        draw(made, target, arguments.plot)


@contextmanager
def models_of(arguments: argparse.Namespace) -> Iterator[list[Path]]:
    """The model's files, for as long as the block runs.

    Raises:
        FileNotFoundError: there are none.
        ValueError: a configuration of no model that can be built.
    """
    from onnx_iron.provider.opening import load_models
    from onnx_iron.tools.config_model import config_of, export_config

    config = config_of(arguments.model)
    if config is None:
        yield [file for file, _ in load_models(arguments.model).values()]
        return
    with tempfile.TemporaryDirectory(prefix="onnx-iron-") as folder:
        export_config(config, Path(folder), arguments)
        yield [file for file, _ in load_models(Path(folder)).values()]


def estimate(
    plans: Sequence[Plan], flops: float, bandwidth: float, filled: int | None = None
) -> Estimate:
    """Count and predict a call of all subgraphs.

    Args:
        filled: entries of the context that are; None: all.
    """
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
                for number, work in enumerate(run.work):
                    assert work.artifact is not None
                    line = cost(plan, work, flops, bandwidth, filled)
                    line.runs = int(number == 0)
                    line.designs = int(work.artifact.key not in seen)
                    seen.add(work.artifact.key)
                    step_us = 0.0 if number == 0 else sum(STEP_US) / 2
                    each_us += step_us + line.busy_us
                    line.dispatch_us = step_us
                    if number == 0:
                        each_us += sum(DISPATCH_US) / 2 + switched
                        line.switch_us = switched
                        line.dispatch_us = in_list_us(len(segment.runs))
                    list_us += line.dispatch_us + line.switch_us + line.busy_us
                    lines.setdefault(operators(work), Line()).add(line)
                steps += len(run.work)
    return Estimate(lines, host, switches, steps, run_lists, each_us, list_us)


def operators(work: Work) -> str:
    """The operators that a step is, in order, each once."""
    return "+".join(dict.fromkeys(part.op.name for part in work.parts))


def in_list_us(runs: int) -> float:
    """What each run of a list costs, between the two lengths that are published."""
    share = (min(max(runs, 1), 8) - 1) / 7
    return RUN_LIST_US[1] + share * (RUN_LIST_US[8] - RUN_LIST_US[1])


def cost(plan: Plan, work: Work, flops: float, bandwidth: float, filled: int | None = None) -> Line:
    """A step's bytes and operations, and how long the array is busy with them."""
    from onnx_iron.kernels.designs.target import CORES
    from onnx_iron.operators import Op

    specs = plan.lowering.specs
    count = 0
    for part in work.parts:
        assert isinstance(part.op, Op)
        shapes = {
            taken.name: specs[name].shape
            for taken, name in zip(part.op.inputs, part.inputs, strict=False)
            if name is not None
        }
        count += part.op.flops(shapes, specs[part.outputs[0]].shape)
    assert work.artifact is not None
    design = work.artifact.design
    share = filled_share(plan, work, filled)
    counts = {v.name: v.high for v in design.values if v.name in design.counted_values()}
    if counts:
        count = math.ceil(count * share)
    moved = traffic(design, tuple((n, math.ceil(high * share)) for n, high in counts.items()))
    all_cores = CORES * design.target.columns
    compute = count / (flops * len(design.columns) * design.rows / all_cores)
    carried = max(moved.slowest / bandwidth, moved.busiest / CHANNEL[design.target])
    waited = PHASE_US * (moved.phases - 1)
    busy = 1e6 * max(compute, carried) + waited
    line = Line(runs=1, bytes=moved.bytes, flops=count, busy_us=busy)
    if compute > carried:
        line.compute_us, line.dma_us = 1e6 * compute, waited
    else:
        line.dma_us = busy
    return line


def counted_context(plans: Sequence[Plan]) -> int | None:
    """The entries of the caches that are read as far as they are filled; None: there is none."""
    from onnx_iron.operators.attention import Attention

    for plan in plans:
        for work in plan.work:
            if work.artifact is not None and work.artifact.design.counted_values():
                caches = [p.inputs[1] for p in work.parts if isinstance(p.op, Attention)]
                return plan.lowering.specs[str(caches[0])].shape[0]
    return None


def filled_share(plan: Plan, work: Work, filled: int | None) -> float:
    """How much of the cache that a step reads is filled."""
    from onnx_iron.operators.attention import Attention

    caches = [part.inputs[1] for part in work.parts if isinstance(part.op, Attention)]
    if filled is None or not caches:
        return 1.0
    return min(1.0, filled / plan.lowering.specs[str(caches[0])].shape[0])


@dataclass(frozen=True)
class Traffic:
    """What a run of a design moves.

    Attributes:
        bytes: between memory and the array.
        slowest: how many they were if all columns moved as many as the one that moves most.
        busiest: of them those of the channel with the most.
        phases: how often transfers are awaited.
    """

    bytes: int
    slowest: int
    busiest: int
    phases: int


@functools.lru_cache(maxsize=1024)
def traffic(design: Design, counts: tuple[tuple[str, int], ...] = ()) -> Traffic:
    """Count a design's transfers, for per-call values that count something."""
    from onnx_iron.kernels.designs.schedule import schedule

    phases = schedule(design, design.possible_values() | dict(counts))
    broadcast = {stream.name for stream in design.streams if stream.broadcast}
    moved: Counter[tuple[int, str]] = Counter()
    columns: Counter[int] = Counter()
    for phase in phases:
        for walk in phase:
            size = math.prod(walk.sizes) * design.buffer(walk.buffer).item_bytes
            moved[walk.column, walk.stream] += size
            columns[walk.column] += 0 if walk.stream in broadcast else size
    total, most = sum(moved.values()), max(columns.values(), default=0)
    shared = total - sum(columns.values())
    slowest = shared + most * len(design.columns)
    return Traffic(total, slowest, max(moved.values(), default=0), len(phases))


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
    if made.filled_us:
        parts = ", ".join(f"{n}: {us / 1000:.2f} ms" for n, us in made.filled_us.items())
        lines.append(f"  with so many tokens in the context: {parts}")
    return "\n".join(lines)
