"""Neg."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import In
from onnx_iron.operators.function import Function


@dataclass(frozen=True)
class Neg(Function):
    """``-x``."""

    x = In()

    def exact(self, x: Array) -> Array:
        return np.negative(x)

    def oracle(self, x: Array) -> Array:
        return np.asarray(0.0 - x)
