"""Sigmoid: the logistic function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In, Tolerance
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Sigmoid(Function):
    """``1 / (1 + exp(-x))``."""

    x = In()
    flops_each = 4
    tolerance = Tolerance(2, 1, "exp is approximated")

    def exact(self, x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    def oracle(self, x: Array) -> Array:
        from scipy.special import expit

        return np.asarray(expit(x))

    def magnitude(self, x: Array) -> Array:
        return np.ones(x.shape)  # of which it is approximated to a part
