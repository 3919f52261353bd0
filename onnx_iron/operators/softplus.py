"""Softplus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In, Tolerance
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Softplus(Function):
    """``log(1 + exp(x))``."""

    x = In()
    flops_each = 4
    tolerance = Tolerance(2, 1, "exp and log are approximated")

    def exact(self, x: Array) -> Array:
        return np.logaddexp(x, 0.0)

    def oracle(self, x: Array) -> Array:
        from scipy.special import log1p

        return np.asarray(np.maximum(x, 0) + log1p(np.exp(-np.abs(x))))
