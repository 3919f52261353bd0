"""How a standard operator's rule is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from onnx_iron.dtypes import Shape
from onnx_iron.provider.lowering import Operation

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
            if result[axis] == 1:
                result[axis] = dim
            elif dim not in (result[axis], 1):
                op.refuse(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
    return tuple(result)
