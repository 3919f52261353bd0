"""Rsqrt: one over the square root."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In, Tolerance
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Rsqrt(Function):
    """``1 / sqrt(x)``."""

    x = In()
    flops_each = 4
    tolerance = Tolerance(2, 1, "the root is rounded before the division")
    standard_operators = ("Sqrt", "Reciprocal")

    def exact(self, x: Array) -> Array:
        return np.asarray(1 / np.sqrt(x))

    def oracle(self, x: Array) -> Array:
        return np.asarray(np.abs(x) ** -0.5 * np.where(x < 0, np.nan, np.copysign(1.0, x)))
