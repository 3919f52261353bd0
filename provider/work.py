"""What a step does, as far as it is known before a call: operations, and bytes read and written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from onnx_iron.dtypes import Spec
from onnx_iron.operators import Op
from onnx_iron.provider.lowering import KernelCall


class Work(NamedTuple):
    """Additions and multiplications, about, and bytes; a kernel may know better when it runs."""

    flops: int
    bytes: int


def work_of(step: KernelCall, specs: Mapping[str, Spec]) -> Work:
    """A step's work with operands of the given dtypes and shapes, which may have symbols."""
    made = [specs[name] for name in step.outputs]
    given = [None if name is None else specs[name] for name in step.inputs]
    return Work(_flops(step, given, made[0]), _bytes(step, given, made))


def _flops(step: KernelCall, given: list[Spec | None], made: Spec) -> int:
    if isinstance(step.op, Op):
        return step.op.flops(_shapes(step.op, given), made.shape)
    if step.op.moves:
        return 0
    # One for an element of the largest operand: right for what is done element by element, and for
    # sums. Kernels of products know theirs.
    return max(math.prod(spec.shape) for spec in (*given, made) if spec is not None)


def _bytes(step: KernelCall, given: list[Spec | None], made: list[Spec]) -> int:
    op, written = step.op, made[0]
    if isinstance(op, Op):
        moved = op.elements_moved(_shapes(op, given), written.shape)
        if moved is not None:
            return moved * written.dtype.itemsize
    total = sum(spec.bytes for spec in made)
    most = math.prod(written.shape)
    for spec in given:
        if spec is None:
            continue
        # Who moves elements reads no more of them than it writes.
        count = math.prod(spec.shape)
        read = most if op.moves and most < count else count
        total += read * spec.dtype.itemsize
    return total


def _shapes(op: Op, given: list[Spec | None]) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs that are given, by name."""
    return {
        declared.name: spec.shape
        for declared, spec in zip(op.declared(len(given)), given, strict=False)
        if spec is not None
    }
