"""Checks of the per-call values of a step before the NPU gets them: a core checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_iron.operators import Kind, Op
from onnx_iron.provider.lowering import KernelCall, Lowering


class ValueRefusedError(ValueError):
    """A per-call value that is out of its bounds; the message is for the user."""


def is_checked(step: KernelCall) -> bool:
    """Whether a step has per-call values."""
    return bool(_integers(step))


def check(step: KernelCall, lowering: Lowering, read: Callable[[str], Sequence[int]]) -> None:
    """Check a step's per-call values, as its operator says.

    Args:
        read: an int operand's elements by the value's name.

    Raises:
        ValueRefusedError: one is out of its bounds, by node, value and bound.
    """
    assert isinstance(step.op, Op)
    shapes = {
        taken.name: lowering.specs[name].shape
        for taken, name in zip(step.op.inputs, step.inputs, strict=False)
        if name is not None
    }
    values = {taken: read(name) for taken, name in _integers(step).items()}
    try:
        step.op.check_call(shapes, values)
    except ValueError as error:
        raise ValueRefusedError(f"{step.op.name} '{step.name}': {error}") from None


def _integers(step: KernelCall) -> dict[str, str]:
    """The operands that hold integers: the operator's name of each, and the value's."""
    if not isinstance(step.op, Op):
        return {}
    return {
        taken.name: name
        for taken, name in zip(step.op.inputs, step.inputs, strict=False)
        if name is not None and taken.kind in (Kind.SCALAR, Kind.INDEX)
    }
