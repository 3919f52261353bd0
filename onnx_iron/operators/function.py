"""What operators of one operand share that compute element by element."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, Op, narrow_like
from onnx_iron.operators.body import Body


class Function(Op):
    """A function of a number. The standard operator of the same name computes it in float32."""

    elementwise = True
    cases = (Case({"x": (3, 37)}),)
    # The standard operators that compute it, one of the other.
    standard_operators: ClassVar[tuple[str, ...]] = ()

    def exact(self, x: Array) -> Array:
        """The function in ``x``'s own precision."""
        raise NotImplementedError

    def reference(self, x: Array) -> Array:
        return narrow_like(self.exact(x.astype(np.float64)), x)

    def body(self, g: Body, x: str) -> str:
        value = g.widen(x)
        for name in self.standard_operators or (self.name,):
            value = g.op(name, value)
        return g.narrow_like(value, x)
