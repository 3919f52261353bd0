"""GELU, exact or by tanh."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Tolerance, narrow_like
from onnx_iron.operators.body import Body

_TANH_SCALE = math.sqrt(2 / math.pi)
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True)
class GELU(Op):
    """``x * Phi(x)`` (``approximate="none"``), or with Phi by tanh (``approximate="tanh"``).

    Hendrycks and Gimpel, arXiv 1606.08415.
    """

    x = In()
    elementwise = True
    flops_each = 4
    approximate: str = "none"
    built_in = ("approximate",)
    # The worst seen is 1 and 1.
    tolerance = Tolerance(2, 1, "erf and tanh are approximated in float32")
    cases = (
        Case({"x": (4, 64)}),
        Case({"x": (4, 64)}, {"approximate": "tanh"}),
        Case({"x": (37,)}),
    )

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise ValueError(f"GELU.approximate is {self.approximate!r}; expected 'none' or 'tanh'")

    def reference(self, x: Array) -> Array:
        wide = x.astype(np.float64)
        if self.approximate == "none":
            return narrow_like(gelu(wide), x)
        with np.errstate(all="ignore"):
            inner = _TANH_SCALE * (wide + 0.044715 * wide**3)
            # (1 + tanh(u)) / 2, without its cancellation for a large negative u.
            return narrow_like(wide / (1 + np.exp(-2 * inner)), x)

    def oracle(self, x: Array) -> Array:
        from scipy.special import expit, ndtr

        if self.approximate == "none":
            return np.asarray(x * ndtr(x))
        return np.asarray(x * expit(2 * _TANH_SCALE * (x + 0.044715 * x**3)))

    def magnitude(self, x: Array) -> Array:
        return np.abs(x)  # x / 2 + x / 2 * erf or tanh

    def body(self, g: Body, x: str) -> str:
        wide = g.widen(x)
        if self.approximate == "none":
            return g.narrow_like(gelu_body(g, wide), x)
        cube = g.op("Mul", g.op("Mul", wide, wide), wide)
        inner = g.op("Add", wide, g.op("Mul", cube, g.real(0.044715)))
        tanh = g.op("Tanh", g.op("Mul", inner, g.real(_TANH_SCALE)))
        half = g.op("Mul", wide, g.real(0.5))
        return g.narrow_like(g.op("Mul", half, g.op("Add", tanh, g.real(1.0))), x)

    def standard(self, g: Body, x: str) -> str:
        return g.narrow_like(g.op("Gelu", g.widen(x), approximate=self.approximate), x)


def gelu(x: Array) -> Array:
    """Exact GELU in float64, by erfc: 1 + erf loses all digits where x is far below zero."""
    with np.errstate(all="ignore"):
        return np.asarray(0.5 * x * _erfc(-x / math.sqrt(2)))


def gelu_body(g: Body, x: str) -> str:
    """Exact GELU of a float32 value, in standard operators."""
    erf = g.op("Erf", g.op("Mul", x, g.real(1 / math.sqrt(2))))
    return g.op("Mul", g.op("Mul", x, g.real(0.5)), g.op("Add", erf, g.real(1.0)))
