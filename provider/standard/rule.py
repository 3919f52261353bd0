"""How a standard operator's rule is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx_iron.dtypes import FLOAT32, Shape, Spec
from onnx_iron.provider.lowering import Difference, Operation
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.symbols import Symbol

Lower: TypeAlias = Callable[[Operation], None]


@dataclass(frozen=True)
class Rule:
    """What turns an operator's nodes into steps, and the versions of the operator it is right for.

    ONNX numbers an operator's versions by the opset that brought them, and each may mean something
    else. A version newer than those that the rule was written for is as strange to it as an old one
    with another meaning.
    """

    lower: Lower
    since: int
    newest: int

    def __call__(self, op: Operation) -> None:
        """Lower a node.

        Raises:
            Refused: the node can't be run, and why.
        """
        node = op.node
        given = f"it is {node.op_type} of opset {node.since_version}"
        if node.since_version < self.since:
            op.refuse(f"{given}; the oldest with the meaning that is known is {self.since}")
        if node.since_version > self.newest:
            op.refuse(f"{given}; the newest that is known is {self.newest}")
        self.lower(op)


# By domain ("" is ONNX's own) and operator.
RULES: dict[tuple[str, str], Rule] = {}


def rule(*op_types: str, since: int, newest: int, domain: str = "") -> Callable[[Lower], Lower]:
    """Register the rule of some operators.

    Args:
        op_types: their names.
        since: the version of the operators from which the rule holds.
        newest: the last version that it was written for.
        domain: theirs.
    """

    def register(function: Lower) -> Lower:
        made = Rule(function, since, newest)
        RULES.update({(domain, op_type): made for op_type in op_types})
        return function

    return register


def broadcast(op: Operation, *shapes: Shape) -> Shape:
    """The shape that numpy's broadcasting gives."""
    result = [1] * max(map(len, shapes))
    for shape in shapes:
        for axis, dim in enumerate(shape, len(result) - len(shape)):
            # Whether both are one size is asked first: where they are, no size is told from 1,
            # and the plan is right for 1 as well.
            if is_one(result[axis]) or not (is_one(dim) or dim == result[axis] or dim == 1):
                if not (is_one(result[axis]) or result[axis] == 1):
                    place = axis - len(result)
                    op.refuse(
                        f"shapes {' and '.join(map(str, shapes))} do not broadcast",
                        both_ways(None, place, dim, result[axis]),
                    )
                result[axis] = dim
    return tuple(result)


def both_ways(index: int | None, axis: int, one: int, other: int) -> list[Difference]:
    """Two sizes of which either may give way."""
    return [Difference(index, axis, one, other), Difference(index, axis, other, one)]


def is_one(dim: int) -> bool:
    """Whether a dimension always is 1: a symbol is not told from other sizes."""
    return not isinstance(dim, Symbol) and dim == 1


def stays(shape: Shape, order: Sequence[int]) -> bool:
    """Whether no element moves in memory where axes come in another order."""
    moved = [axis for axis in order if not is_one(shape[axis])]
    return moved == sorted(moved)


def transposed(op: Operation, name: str, spec: Spec, order: list[int]) -> tuple[str, Spec]:
    """A value with its axes in another order; a view where no element moves."""
    turned = Spec(tuple(spec.shape[axis] for axis in order), spec.dtype)
    if stays(spec.shape, order):
        return op.viewed(name, turned.shape), turned
    made = op.temporary(turned)
    op.step(standard("Transpose", moves=True, perm=order), [name], [made])
    return made, turned


def along(op: Operation, axis: int, operator: Operator) -> None:
    """A step that works along the last axis works along another one."""
    spec, rank = op.spec(0), len(op.spec(0).shape)
    if axis == rank - 1:
        op.step(operator, [op.input(0)], [op.output(spec)])
        return
    order = [*(a for a in range(rank) if a != axis), axis]
    x, turned = transposed(op, op.input(0), spec, order)
    y = op.temporary(turned)
    op.step(operator, [x], [y])
    back = [order.index(a) for a in range(rank)]
    op.step(standard("Transpose", moves=True, perm=back), [y], [op.output(spec)])


def widened(op: Operation, name: str, spec: Spec) -> str:
    """A value in float32, for an operator that takes several steps and rounds once."""
    if spec.dtype == FLOAT32:
        return name
    made = op.temporary(Spec(spec.shape, FLOAT32))
    op.step(standard("Cast", moves=True), [name], [made])
    return made


def rounded(op: Operation, name: str, spec: Spec) -> None:
    """The output is a float32 value with as many elements, rounded to its own dtype."""
    if spec.dtype == FLOAT32:
        op.view(name, spec.shape)
        return
    op.step(standard("Cast", moves=True), [op.viewed(name, spec.shape)], [op.output(spec)])
