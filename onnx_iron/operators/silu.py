"""SiLU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Tolerance, narrow_like
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class SiLU(Op):
    """``x * sigmoid(x)``, as ``x / (1 + exp(-x))``."""

    stem = "silu"
    x = In()
    elementwise = True
    flops_each = 4
    standard_opset = 24
    # The worst seen is 1 and 1.
    tolerance = Tolerance(2, 1, "exp is approximated")
    cases = (Case({"x": (4, 64)}), Case({"x": (37,)}), Case({"x": (2, 3, 5)}))

    def reference(self, x: Array) -> Array:
        return narrow_like(silu(x.astype(np.float64)), x)

    def oracle(self, x: Array) -> Array:
        from scipy.special import expit

        return np.asarray(x * expit(x))

    def magnitude(self, x: Array) -> Array:
        return np.abs(x)  # of which a sigmoid with an absolute error takes a part

    def body(self, g: Body, x: str) -> str:
        return g.narrow_like(silu_body(g, g.widen(x)), x)

    def standard(self, g: Body, x: str) -> str:
        wide = g.widen(x)
        if g.opset == self.standard_opset:
            return g.narrow_like(g.op("Swish", wide), x)
        # onnxruntime has Swish as a function alone, and that in models of its own opset only.
        return g.narrow_like(g.op("Mul", wide, g.op("Sigmoid", wide)), x)


def silu(x: Array) -> Array:
    """SiLU in ``x``'s own precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x / (1 + np.exp(-x)))


def silu_body(g: Body, x: str) -> str:
    """SiLU of a float32 value, in standard operators."""
    return g.op("Div", x, g.op("Add", g.op("Exp", g.op("Neg", x)), g.real(1.0)))
