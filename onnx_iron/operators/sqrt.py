"""Sqrt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Sqrt(Function):
    """``sqrt(x)``."""

    x = In()

    def exact(self, x: Array) -> Array:
        return np.sqrt(x)

    def oracle(self, x: Array) -> Array:
        return np.where(x < 0, np.nan, np.abs(x) ** 0.5)
