"""Which states a session can go back in: caches whose entries are the rows at each position."""

from __future__ import annotations

from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.graph.value import Value
from onnx_iron.operators.attention import Attention

_POSITION = Value.named("position")


def by_position(trace: Trace) -> set[str]:
    """The states of which a call at ``position`` reads no entry from before that a later call
    wrote: they are written from ``position`` on, and read by causal attention at it only.
    """
    other = set()
    for step in trace.steps:
        for handle in step.outputs:
            if handle.base.role is Role.STATE and not _written_from_position(handle.base, handle):
                other.add(handle.base.name)
        for place, operand in enumerate(step.inputs):
            if (
                isinstance(operand, Handle)
                and operand.base.role is Role.STATE
                and not _seen_up_to_position(step, place, operand)
            ):
                other.add(operand.base.name)
    return {name for name, state in trace.states.items() if not state.scratch} - other


def _entries_axis(shape: tuple[int, ...]) -> int:
    """Where a cache has its entries: in front, or behind the sequences of a batch."""
    return 1 if len(shape) == 4 else 0


def _written_from_position(state: Handle, handle: Handle) -> bool:
    first = next((part.index for part in handle.lineage() if part.index), None)
    regions = first.regions if first else ()
    axis = _entries_axis(state.shape)
    if not regions or regions[0].axis != axis:
        return False
    # As the state has its axes up to there, in a view or not.
    before = regions[0].view_shape[: axis + 1] == state.shape[: axis + 1]
    return before and _is_position(regions[0].start)


def _is_position(start: object) -> bool:
    # A value compared with an integer raises: nobody knows what it will be.
    return isinstance(start, Value) and start == _POSITION


def _seen_up_to_position(step: Step, place: int, operand: Handle) -> bool:
    names = [given.name for given in step.op.inputs]
    return (
        isinstance(step.op, Attention)
        and step.op.is_causal
        and names[place] in ("key", "value")
        and operand.whole
        and operand.shape == operand.base.shape
        and not operand.valid
        and _is_position(step.inputs[names.index("position")])
    )
