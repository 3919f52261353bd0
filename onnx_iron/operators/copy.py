"""Copy: a tensor's elements in memory of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle, Tensor
from onnx_iron.operators.base import Case, In, Kind, Op
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Copy(Op):
    """``x`` itself, in memory of its own; where it is given a part of a state, a write to it."""

    x = In(Kind.ANY)
    elementwise = True
    moves = True
    cases = (Case({"x": (4, 8)}), Case({"x": (3,)}))

    def reference(self, x: Array) -> Array:
        return np.array(x)

    def oracle(self, x: Array) -> Array:
        return x

    def body(self, g: Body, x: str) -> str:
        return g.op("Identity", x)

    @classmethod
    def steps(cls, *operands: Any, **named: Any) -> tuple[Handle, ...]:
        """Record a copy: ``Copy.step(source)`` returns its handle, ``Copy.step(source,
        destination)`` writes a state or a part of one, and returns that part.
        """
        if len(operands) != 2:
            return super().steps(*operands, **named)
        source, destination = operands
        if named or not isinstance(destination, Tensor):
            raise TypeError(
                f"Copy.step(source, destination): the destination is {destination!r}; it must be "
                "a state or a part of one"
            )
        destination[...] = source
        return (destination[...],)
