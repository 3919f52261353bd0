"""ArgMax over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import INT64, Array
from onnx_iron.operators.base import Case, In, Op, Shape, widen
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class ArgMax(Op):
    """The place of the largest element along the last axis, which is dropped: of equals the first,
    and the first NaN where there is one.
    """

    x = In()
    results: ClassVar = {"y": INT64}
    reduces_last_axis = True
    cases = (Case({"x": (4, 64)}), Case({"x": (2, 3, 17)}), Case({"x": (37,)}))

    def shape(self, x: Shape) -> Shape:
        if not x or x[-1] == 0:
            raise ValueError(f"ArgMax.x is {x}; it needs a last axis with entries")
        return x[:-1]

    def flops(self, shapes: Any, output: Shape) -> int:
        return int(np.prod(shapes["x"]))

    def reference(self, x: Array) -> Array:
        return np.asarray(np.argmax(widen(x), axis=-1))

    def oracle(self, x: Array) -> Array:
        most = np.max(x, axis=-1, keepdims=True)
        places = np.where((x == most) | np.isnan(x), np.arange(x.shape[-1]), x.shape[-1])
        return np.asarray(places.min(-1))

    def body(self, g: Body, x: str) -> str:
        # Of places that hold the largest element, or NaN where there is one, the first.
        wide, last = g.widen(x), len(g.shape("x")) - 1
        most = g.op("ReduceMax", wide, g.ints(last), keepdims=1)
        nan = g.widen(g.op("IsNaN", wide))
        largest = g.widen(g.op("Equal", wide, most))
        weight = g.op("Add", g.op("Add", nan, nan), largest)
        return g.op("ArgMax", weight, axis=last, keepdims=0)

    def shape_variant(self, shapes: Any) -> str:
        return f"{len(shapes[0])}d"
