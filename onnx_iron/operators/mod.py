"""Mod of integers, elementwise with numpy's broadcasting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.arithmetic import Binary
from onnx_iron.operators.base import In, Kind


@dataclass(frozen=True)
class Mod(Binary):
    """``a % b`` of integers, with ``b``'s sign, as Python's."""

    a = In(Kind.NUMBER)
    b = In(Kind.NUMBER)
    domain = ""
    ufunc = np.remainder

    def compute(self, a: Array, b: Array) -> Array:
        if np.any(b == 0):
            raise ValueError("Mod: an element of b is 0, expected divisors other than 0")
        return super().compute(a, b)
