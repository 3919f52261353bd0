"""Where: one of two operands, element by element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.arithmetic import broadcast_shape
from onnx_iron.operators.base import Case, In, Kind, Op, Shape
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Where(Op):
    """``a`` where ``condition`` holds, ``b`` elsewhere, with numpy's broadcasting."""

    condition = In(Kind.BOOL)
    a = In(Kind.ANY)
    b = In(Kind.ANY)
    elementwise = True
    cases = (
        Case({"condition": (4, 64), "a": (4, 64), "b": (4, 64)}),
        Case({"condition": (5, 1), "a": (33,), "b": ()}),
    )

    def shape(self, condition: Shape, a: Shape, b: Shape) -> Shape:
        return broadcast_shape(self.name, condition, broadcast_shape(self.name, a, b))

    def reference(self, condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition, a, b)

    def oracle(self, condition: Array, a: Array, b: Array) -> Array:
        shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
        y = np.array(np.broadcast_to(b, shape))
        np.copyto(y, np.broadcast_to(a, shape), where=condition)
        return y

    def body(self, g: Body, condition: str, a: str, b: str) -> str:
        return g.narrow_like(g.op("Where", condition, g.widen(a), g.widen(b)), a)
