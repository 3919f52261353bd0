"""From a claimed subgraph to a program of the NPU, and what the placement report says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from onnx_iron.kernels.designs.device import Device
from onnx_iron.provider.graph import Graph
from onnx_iron.provider.npu import runtime
from onnx_iron.provider.npu.errors import NpuError
from onnx_iron.provider.npu.image import ImageError
from onnx_iron.provider.npu.plan import Plan, make_plan
from onnx_iron.provider.npu.program import NpuProgram
from onnx_iron.provider.npu.xrt import open_device, simulated
from onnx_iron.provider.program import CompileError
from onnx_iron.provider.specs import Shape

# Reasons that an error lists, before it says how many more there are.
_LISTED = 5


@dataclass(frozen=True)
class Assigned:
    """Where a node runs; the reason is empty where that is the NPU."""

    device: str
    reason: str


@dataclass
class Compiled:
    """What became of a subgraph: a program's number, or 0 where the host runs everything."""

    number: int
    nodes: dict[str, Assigned]


def compile_for_npu(
    graph: Graph, shapes: Sequence[Shape], provider: int, fallback: str, timeout_ms: int
) -> Compiled:
    """Compile a claimed subgraph.

    Raises:
        CompileError: with fallback "error", the NPU can't run a step.
    """
    device = open_device()
    target = Device(device.target.name)
    plan = make_plan(graph, shapes, target, simulated(), any_artifact=False)
    nodes = assigned(plan)
    if fallback == "error":
        refuse(plan)
    if not any(work.on_npu for work in plan.work):
        return Compiled(0, nodes)
    try:
        program = NpuProgram(plan, device, timeout_ms)
    except (NpuError, ImageError, FileNotFoundError) as error:
        if fallback == "error":
            raise CompileError(str(error)) from None
        return Compiled(0, {name: Assigned("cpu", str(error)) for name in nodes})
    specs = plan.lowering.specs
    seat = runtime.Seat(
        program,
        provider,
        fallback,
        [specs[name] for name in plan.inputs],
        [specs[name] for name in plan.outputs],
    )
    return Compiled(runtime.enter(seat), nodes)


def assigned(plan: Plan) -> dict[str, Assigned]:
    """Where each node runs: on the NPU where all its steps do."""
    nodes: dict[str, Assigned] = {}
    for work in plan.work:
        name = work.step.name
        here = Assigned("npu", "") if work.on_npu else Assigned("cpu", work.reason)
        if name not in nodes or not work.on_npu:
            nodes[name] = here
    return nodes


def refuse(plan: Plan) -> None:
    """Refuse a plan in which the host does what the NPU was asked for.

    Raises:
        CompileError: each reason, with the nodes that it is about.
    """
    reasons: dict[str, list[str]] = {}
    for work in plan.work:
        if not work.on_npu and not work.natural:
            reasons.setdefault(work.reason, []).append(f"{work.step.op} '{work.step.name}'")
    if not reasons:
        return
    lines = []
    for reason, names in list(reasons.items())[:_LISTED]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"{names[0]}{more}: {reason}")
    if len(reasons) > _LISTED:
        lines.append(f"and {len(reasons) - _LISTED} more reasons")
    raise CompileError(
        "device is 'npu' and fallback 'error', and the NPU can't run: " + "; ".join(lines)
    )


# -- collecting -----------------------------------------------------------------------------

_collected: list[Plan] | None = None
_collected_for: tuple[Device, bool] = (Device.NPU2, False)


@contextmanager
def collecting(device: Device, simulator: bool) -> Iterator[list[Plan]]:
    """While the block runs, sessions are opened only for the plans that they would have."""
    global _collected, _collected_for
    _collected, _collected_for = [], (device, simulator)
    try:
        yield _collected
    finally:
        _collected = None


def collect(graph: Graph, shapes: Sequence[Shape]) -> None:
    """Keep a subgraph's plan, where somebody collects them."""
    if _collected is not None:
        _collected.append(make_plan(graph, shapes, *_collected_for, any_artifact=True))
