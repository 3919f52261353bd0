"""Exp."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In, Tolerance
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Exp(Function):
    """``exp(x)``."""

    x = In()
    flops_each = 4
    tolerance = Tolerance(2, 1, "exp is approximated")

    def exact(self, x: Array) -> Array:
        return np.exp(x)

    def oracle(self, x: Array) -> Array:
        from scipy.special import exp2

        return np.asarray(np.where(np.abs(x) < 800, exp2(x * 1.4426950408889634), np.exp(x)))
