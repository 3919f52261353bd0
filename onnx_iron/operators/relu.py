"""ReLU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Relu(Function):
    """``max(x, 0)``; NaN stays."""

    x = In()

    def exact(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def oracle(self, x: Array) -> Array:
        return np.where(x < 0, 0.0, x)
