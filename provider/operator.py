"""What a step runs: an operator of ours, or a kernel that only standard operators call for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from onnx_iron.operators import Op


@dataclass(frozen=True)
class StandardOp:
    """A kernel that no operator of ours has; it answers what a step's operator is asked.

    Attributes:
        name: the kernel's.
        given: its attributes by name, integers, floats, strings or tuples of integers.
        elementwise: each output element depends on the input elements at its own place alone.
        moves: it moves or converts elements and computes nothing.
        updates: the names of its first input and its output where these may be one buffer.
    """

    name: str
    given: tuple[tuple[str, Any], ...] = ()
    elementwise: bool = False
    moves: bool = False
    updates: tuple[tuple[str, str], ...] = ()

    def attributes(self) -> dict[str, Any]:
        """The kernel's attributes."""
        return dict(self.given)

    def replaceable(self, output: int, inputs: int) -> Sequence[int]:
        """The inputs whose bytes an output may take."""
        if self.updates:
            return range(1) if output == 0 else ()
        return range(inputs) if self.elementwise else ()


Operator: TypeAlias = Op | StandardOp


def standard(
    name: str,
    *,
    elementwise: bool = False,
    moves: bool = False,
    updates: bool = False,
    **attributes: Any,
) -> StandardOp:
    """A kernel of a standard operator, with its attributes."""
    given = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items())
    return StandardOp(name, given, elementwise, moves, (("x", "y"),) if updates else ())
