"""LayerNorm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Shape, Tolerance, narrow_like, widen
from onnx_iron.operators.body import Body
from onnx_iron.operators.rms_norm import check_weight


@dataclass(frozen=True)
class LayerNorm(Op):
    """``(x - mean) / sqrt(var + epsilon) * weight`` over the last axis; population variance.

    Ba, Kiros and Hinton, arXiv 1607.06450.
    """

    x = In()
    weight = In(optional=True)
    epsilon: float = 1e-5
    reduces_last_axis = True
    flops_each = 4
    tolerance = Tolerance(
        8, 1, "sums in some order; what is left of the mean in x - mean", of_magnitude=2**-22
    )
    cases = (
        Case({"x": (4, 64)}),
        Case({"x": (4, 64), "weight": (64,)}),
        Case({"x": (2, 3, 96), "weight": (96,)}, {"epsilon": 1e-3}),
    )

    def shape(self, x: Shape, weight: Shape | None = None) -> Shape:
        check_weight(self.name, x, weight)
        return x

    def reference(self, x: Array, weight: Array | None = None) -> Array:
        wide = widen(x)
        centred = wide - wide.mean(axis=-1, keepdims=True, dtype=np.float32)
        variance = np.mean(centred * centred, axis=-1, keepdims=True, dtype=np.float32)
        y = centred / np.sqrt(variance + np.float32(self.epsilon))
        return narrow_like(y if weight is None else y * widen(weight), x)

    def oracle(self, x: Array, weight: Array | None = None) -> Array:
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.epsilon)
        return np.asarray(y if weight is None else y * weight)

    def magnitude(self, x: Array, weight: Array | None = None) -> Array:
        root = np.sqrt(x.var(-1, keepdims=True) + self.epsilon)
        y = (np.abs(x) + np.abs(x).mean(-1, keepdims=True)) / root
        return np.asarray(y if weight is None else y * np.abs(weight))

    def body(self, g: Body, x: str, weight: str | None = None) -> str:
        wide = g.widen(x)
        centred = g.op("Sub", wide, g.op("ReduceMean", wide, g.ints(-1), keepdims=1))
        variance = g.op("ReduceMean", g.op("Mul", centred, centred), g.ints(-1), keepdims=1)
        root = g.op("Sqrt", g.op("Add", variance, g.attribute("epsilon")))
        y = g.op("Div", centred, root)
        if weight is not None:
            y = g.op("Mul", y, g.widen(weight))
        return g.narrow_like(y, x)

    def standard(self, g: Body, x: str, weight: str | None = None) -> str:
        scale = (
            g.widen(weight)
            if weight is not None
            else g.op("Expand", g.real(1.0), g.ints(g.shape("x")[-1]))
        )
        y = g.op("LayerNormalization", g.widen(x), scale, axis=-1, epsilon=self.epsilon)
        return g.narrow_like(y, x)
