"""ReduceSum, ReduceMean and ReduceMax over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Shape, Tolerance, narrow_like, widen
from onnx_iron.operators.body import Body


class _Reduce(Op):
    x = In()
    reduces_last_axis = True
    built_in = ("keepdims",)
    cases = (
        Case({"x": (4, 64)}),
        Case({"x": (2, 3, 17)}, {"keepdims": True}),
        Case({"x": (37,)}),
    )
    keepdims: bool
    ufunc: ClassVar[Any]

    def shape(self, x: Shape) -> Shape:
        if not x or x[-1] == 0:
            raise ValueError(f"{self.name}.x is {x}; it needs a last axis with entries")
        return (*x[:-1], 1) if self.keepdims else x[:-1]

    def flops(self, shapes: Any, output: Shape) -> int:
        return int(np.prod(shapes["x"]))

    def reference(self, x: Array) -> Array:
        result = np.asarray(type(self).ufunc(widen(x), axis=-1, keepdims=self.keepdims))
        return narrow_like(result, x)

    def oracle(self, x: Array) -> Array:
        return np.asarray(type(self).ufunc(x, axis=-1, keepdims=self.keepdims))

    def body(self, g: Body, x: str) -> str:
        wide = g.widen(x)
        last = g.ints(len(g.shape("x")) - 1)
        y = g.op(self.name, wide, last, keepdims=int(self.keepdims))
        return g.narrow_like(y, x)

    def shape_variant(self, shapes: Any) -> str:
        return f"{len(shapes[0])}d"


@dataclass(frozen=True)
class ReduceSum(_Reduce):
    """The sum over the last axis, which is dropped where not ``keepdims``."""

    keepdims: bool = False
    stem = "sum"
    tolerance = Tolerance(4, 1, "a sum in some order", of_magnitude=2**-21)
    ufunc = np.sum

    def magnitude(self, x: Array) -> Array:
        return self.oracle(np.abs(x))


@dataclass(frozen=True)
class ReduceMean(_Reduce):
    """The mean over the last axis, which is dropped where not ``keepdims``."""

    keepdims: bool = False
    stem = "mean"
    tolerance = Tolerance(4, 1, "a sum in some order", of_magnitude=2**-21)
    ufunc = np.mean

    def magnitude(self, x: Array) -> Array:
        return self.oracle(np.abs(x))


@dataclass(frozen=True)
class ReduceMax(_Reduce):
    """The largest element along the last axis, which is dropped where not ``keepdims``; NaN where
    one is.
    """

    keepdims: bool = False
    stem = "max"
    ufunc = np.max

    def body(self, g: Body, x: str) -> str:
        # ReduceMax leaves NaN out where it pleases; a sum keeps it.
        wide, last, keep = g.widen(x), g.ints(len(g.shape("x")) - 1), int(self.keepdims)
        most = g.op("ReduceMax", wide, last, keepdims=keep)
        count = g.op("ReduceSum", g.widen(g.op("IsNaN", wide)), last, keepdims=keep)
        nan = g.op("Greater", count, g.real(0.0))
        return g.narrow_like(g.op("Where", nan, g.real(np.nan), most), x)
