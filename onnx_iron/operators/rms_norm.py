"""RMSNorm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Shape, Tolerance, narrow_like, widen
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class RMSNorm(Op):
    """``x / sqrt(mean(x**2) + epsilon)`` over the last axis, rounded, then ``* weight``, rounded.

    Zhang and Sennrich, arXiv 1910.07467; two roundings, as Llama and LFM2 have them.
    """

    x = In()
    weight = In(optional=True)
    epsilon: float = 1e-5
    reduces_last_axis = True
    flops_each = 4
    standard_opset = 23
    tolerance = Tolerance(8, 1, "a sum in some order; the first of two roundings")
    cases = (
        Case({"x": (4, 64)}),
        Case({"x": (4, 64), "weight": (64,)}),
        Case({"x": (2, 3, 96), "weight": (96,)}, {"epsilon": 1e-3}),
        Case({"x": (33,), "weight": (33,)}),
    )

    def shape(self, x: Shape, weight: Shape | None = None) -> Shape:
        check_weight(self.name, x, weight)
        return x

    def reference(self, x: Array, weight: Array | None = None) -> Array:
        wide = widen(x)
        mean = np.mean(wide * wide, axis=-1, keepdims=True, dtype=np.float32)
        y = narrow_like(wide / np.sqrt(mean + np.float32(self.epsilon)), x)
        return y if weight is None else narrow_like(widen(y) * widen(weight), x)

    def oracle(self, x: Array, weight: Array | None = None) -> Array:
        y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.epsilon)
        return np.asarray(y if weight is None else y * weight)

    def body(self, g: Body, x: str, weight: str | None = None) -> str:
        wide = g.widen(x)
        mean = g.op("ReduceMean", g.op("Mul", wide, wide), g.ints(-1), keepdims=1)
        root = g.op("Sqrt", g.op("Add", mean, g.attribute("epsilon")))
        y = g.narrow_like(g.op("Div", wide, root), x)
        if weight is None:
            return y
        return g.narrow_like(g.op("Mul", g.widen(y), g.widen(weight)), x)

    def standard(self, g: Body, x: str, weight: str | None = None) -> str:
        wide = g.widen(x)
        if weight is None:
            ones = g.op("Expand", g.real(1.0), g.ints(g.shape("x")[-1]))
            return g.narrow_like(
                g.op("RMSNormalization", wide, ones, axis=-1, epsilon=self.epsilon), x
            )
        scale = g.widen(weight)
        return g.narrow_like(
            g.op("RMSNormalization", wide, scale, axis=-1, epsilon=self.epsilon), x
        )


def check_weight(name: str, x: Shape, weight: Shape | None) -> None:
    """A norm's weight has the last axis of x.

    Raises:
        ValueError: it has another shape, or x has no last axis.
    """
    if not x or x[-1] == 0:
        raise ValueError(f"{name}.x is {x}; it needs a last axis with entries")
    if weight is not None and weight != x[-1:]:
        raise ValueError(f"{name}.weight is {weight}; x is {x}, so it must be {x[-1:]}")
