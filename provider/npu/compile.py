"""From a claimed subgraph to a program of the NPU, and what the placement report says of it."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass
class Compiled:
    """What became of a subgraph.

    Attributes:
        number: its program's, or 0 where the host runs everything.
        nodes: by name the device that runs a node, and why it is not the NPU; empty where it is,
            and where the host runs the node by nature.
    """

    number: int
    nodes: dict[str, tuple[str, str]]


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
        return Compiled(0, {name: ("cpu", str(error)) for name in nodes})
    specs = plan.lowering.specs
    seat = runtime.Seat(
        program,
        provider,
        fallback,
        [specs[name] for name in plan.inputs],
        [specs[name] for name in plan.outputs],
    )
    return Compiled(runtime.enter(seat), nodes)


def assigned(plan: Plan) -> dict[str, tuple[str, str]]:
    """Where each node runs: on the NPU where all its steps do."""
    nodes: dict[str, tuple[str, str]] = {}
    for work in plan.work:
        name = work.step.name
        if work.on_npu:
            nodes.setdefault(name, ("npu", ""))
        elif not work.natural or name not in nodes:
            nodes[name] = "cpu", "" if work.natural else work.reason
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
