"""Pow, elementwise with numpy's broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.arithmetic import Binary
from onnx_iron.operators.base import Case, In, Tolerance


@dataclass(frozen=True)
class Pow(Binary):
    """``a`` to the power ``b``."""

    a = In()
    b = In()
    flops_each = 16
    tolerance = Tolerance(2, 1, "exp and log are approximated")
    cases: ClassVar = (Case({"a": (4, 64), "b": (4, 64)}), Case({"a": (5, 33), "b": ()}))
    ufunc = np.power

    def reference(self, a: Array, b: Array) -> Array:
        return np.asarray(
            np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32).astype(a.dtype)
        )

    def oracle(self, a: Array, b: Array) -> Array:
        return np.asarray(np.float_power(a, b))
