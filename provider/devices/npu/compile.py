"""From a claimed subgraph to a program of the NPU, and what the placement report says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_iron.kernels.designs import Target
from onnx_iron.native import library
from onnx_iron.provider.devices.npu import runtime
from onnx_iron.provider.devices.npu.errors import NpuError
from onnx_iron.provider.devices.npu.image import ImageError
from onnx_iron.provider.devices.npu.plan import Plan, make_plan
from onnx_iron.provider.devices.npu.program import NpuProgram
from onnx_iron.provider.devices.npu.toolchain import design_compiler
from onnx_iron.provider.devices.npu.xrt import open_device
from onnx_iron.provider.program import Writer
from onnx_iron.provider.subgraph import CompileError, Subgraph

if TYPE_CHECKING:
    from onnx_iron.provider.options import Options

# Reasons that an error lists, before it says how many more there are.
_LISTED = 5


def compile_for_npu(
    request: int, subgraph: Subgraph, provider: int, options: Options
) -> dict[str, tuple[str, str]]:
    """Hand over the program of a subgraph; the CPU's is there too, for the calls that fall back.

    Returns:
        By name the device that runs a node, and why it is not the NPU; empty where it is, and where
        the host runs the node by nature.

    Raises:
        CompileError: with fallback "error", the NPU can't run a step.
    """
    Writer(subgraph, bool(options.profile)).hand_over(request)
    device = open_device()
    target = Target(device.target.name)
    plan = make_plan(subgraph, target, design_compiler(), any_artifact=False)
    nodes = assigned(plan)
    if options.fallback == "error":
        refuse(plan)
    if not any(work.on_npu for work in plan.work):
        return nodes
    try:
        program = NpuProgram(plan, device, options.timeout_ms)
    except (NpuError, ImageError, FileNotFoundError) as error:
        if options.fallback == "error":
            raise CompileError(str(error)) from None
        return {name: ("cpu", str(error)) for name in nodes}
    specs = plan.lowering.specs
    seat = runtime.Seat(
        program,
        provider,
        options.fallback,
        [specs[name] for name in plan.inputs],
        [specs[name] for name in plan.outputs],
    )
    library().onnx_iron_program_device(request, runtime.enter(seat))
    return nodes


def assigned(plan: Plan) -> dict[str, tuple[str, str]]:
    """Where each node runs: on the NPU where all its steps do."""
    nodes: dict[str, tuple[str, str]] = {}
    # What the host does by nature comes last: numbers that it counts for a step of the NPU's are
    # that step's, too.
    for work in sorted(plan.work, key=lambda work: work.natural):
        for name in (step.name for step in work.parts):
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
            reasons.setdefault(work.reason, []).append(f"{work.step.op.name} '{work.step.name}'")
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
