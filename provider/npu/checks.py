"""Checks of the per-call values of a step before the NPU gets them: a core checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from onnx_iron.provider.lowering import Lowering, Step
from onnx_iron.provider.specs import Shape

# Reads an int32 operand's elements; none for one that is omitted.
Read: TypeAlias = Callable[[str | None], Sequence[int]]


class ValueRefusedError(ValueError):
    """A per-call value that is out of its bounds; the message is for the user."""


def is_checked(step: Step) -> bool:
    """Whether a step has per-call values that need a check."""
    return step.op in _CHECKS


def check(step: Step, lowering: Lowering, read: Read) -> None:
    """Check a step's per-call values.

    Raises:
        ValueRefusedError: one is out of its bounds, by node, value and bound.
    """
    checker = _CHECKS.get(step.op)
    if checker is None:
        return
    shapes = [None if name is None else lowering.specs[name].shape for name in step.inputs]
    reason = checker(step, shapes, [read_or_none(read, step, i) for i in range(5)])
    if reason:
        raise ValueRefusedError(f"{step.op} '{step.name}': {reason}")


def read_or_none(read: Read, step: Step, index: int) -> Sequence[int]:
    """The elements of an operand that a step may not have."""
    return read(step.inputs[index]) if index < len(step.inputs) else ()


def _conv(step: Step, shapes: Sequence[Shape | None], given: Sequence[Sequence[int]]) -> str:
    x, rows = shapes[0], given[4]
    assert x is not None
    if rows and not 0 <= rows[0] <= x[-2]:
        return f"rows is {rows[0]}, expected 0..{x[-2]} (x has {x[-2]} rows)"
    return ""


def _attention(step: Step, shapes: Sequence[Shape | None], given: Sequence[Sequence[int]]) -> str:
    key, position, kv_rows = shapes[1], given[3], given[4]
    assert key is not None
    entries = key[0]
    if position and not 0 <= position[0] < entries:
        return f"position is {position[0]}, expected 0..{entries - 1} (key has {entries} rows)"
    if kv_rows and not 1 <= kv_rows[0] <= entries:
        return f"kv_rows is {kv_rows[0]}, expected 1..{entries} (key has {entries} rows)"
    return ""


def _part(length: int, dim: int, start: Sequence[int], rows: Sequence[int]) -> str:
    valid = rows[0] if rows else length
    if not 0 <= valid <= length:
        return f"rows is {valid}, expected 0..{length}"
    if not 0 <= start[0] <= dim - valid:
        return (
            f"start is {start[0]} and rows {valid}, expected 0 <= start <= {dim - valid} (the axis "
            f"has {dim} entries)"
        )
    return ""


def _narrow(step: Step, shapes: Sequence[Shape | None], given: Sequence[Sequence[int]]) -> str:
    x = shapes[0]
    assert x is not None
    length, axis = int(str(step.attributes["length"])), int(str(step.attributes["axis"]))
    return _part(length, x[axis], given[1], given[2])


def _scatter(step: Step, shapes: Sequence[Shape | None], given: Sequence[Sequence[int]]) -> str:
    x, src = shapes[0], shapes[1]
    assert x is not None
    assert src is not None
    axis = int(str(step.attributes["axis"]))
    return _part(src[axis], x[axis], given[2], given[3])


def _embedding(step: Step, shapes: Sequence[Shape | None], given: Sequence[Sequence[int]]) -> str:
    weight = shapes[0]
    assert weight is not None
    for index, number in enumerate(given[1]):
        if not 0 <= number < weight[0]:
            return f"ids[{index}] is {number}, expected 0..{weight[0] - 1}"
    return ""


_CHECKS = {
    "Attention": _attention,
    "CausalConv1d": _conv,
    "Embedding": _embedding,
    "Narrow": _narrow,
    "SliceScatter": _scatter,
}
