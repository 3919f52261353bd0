"""CumSum over the last axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Shape, Tolerance, narrow_like, widen
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class CumSum(Op):
    """Each element with all before it along the last axis, summed in ascending order."""

    x = In()
    stem = "cumsum"
    tolerance = Tolerance(4, 1, "a sum in some order", of_magnitude=2**-21)
    cases = (Case({"x": (4, 64)}), Case({"x": (2, 3, 17)}), Case({"x": (37,)}))

    def shape(self, x: Shape) -> Shape:
        if not x:
            raise ValueError("CumSum.x is (); it needs a last axis")
        return x

    def reference(self, x: Array) -> Array:
        return narrow_like(np.cumsum(widen(x), axis=-1, dtype=np.float64), x)

    def oracle(self, x: Array) -> Array:
        return np.add.accumulate(x, axis=-1)

    def magnitude(self, x: Array) -> Array:
        return self.oracle(np.abs(x))

    def body(self, g: Body, x: str) -> str:
        return g.narrow_like(g.op("CumSum", g.widen(x), g.integer(-1)), x)
