"""Softmax over the last axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Shape, Tolerance, narrow_like, widen
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Softmax(Op):
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` over the last axis."""

    x = In()
    reduces_last_axis = True
    flops_each = 4
    tolerance = Tolerance(8, 1, "exp is approximated, x - max is rounded", of_magnitude=2**-23)
    cases = (Case({"x": (4, 64)}), Case({"x": (2, 3, 17)}), Case({"x": (5, 1)}))

    def shape(self, x: Shape) -> Shape:
        if not x or x[-1] == 0:
            raise ValueError(f"Softmax.x is {x}; it needs a last axis with entries")
        return x

    def reference(self, x: Array) -> Array:
        return narrow_like(softmax(widen(x)), x)

    def oracle(self, x: Array) -> Array:
        from scipy.special import softmax as exact

        return np.asarray(exact(x, axis=-1))

    def magnitude(self, x: Array) -> Array:
        # exp of a difference that is rounded to float32 is off by as much as the difference is.
        return np.asarray(self.oracle(x) * (1 + np.minimum(x.max(-1, keepdims=True) - x, 150)))

    def body(self, g: Body, x: str) -> str:
        return g.narrow_like(g.op("Softmax", g.widen(x), axis=-1), x)


def softmax(x: Array) -> Array:
    """Softmax over the last axis in ``x``'s own precision."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))
