"""Log: the natural logarithm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In, Tolerance
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Log(Function):
    """``log(x)``; -inf of 0, NaN below."""

    x = In()
    flops_each = 4
    tolerance = Tolerance(0, 1, "a logarithm of float64, rounded once")

    def exact(self, x: Array) -> Array:
        return np.log(x)

    def oracle(self, x: Array) -> Array:
        return np.asarray(np.log2(x) * 0.6931471805599453)
