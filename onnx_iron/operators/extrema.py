"""Max and Min of two operands, elementwise with numpy's broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.arithmetic import Binary
from onnx_iron.operators.base import Case, In, Kind


class _Extremum(Binary):
    a = In(Kind.NUMBER)
    b = In(Kind.NUMBER)
    ufunc: ClassVar[Any]
    picks: ClassVar[Any]
    cases: ClassVar = (Case({"a": (5, 33), "b": (33,)}), Case({"a": (5, 1), "b": (1, 7)}))

    def oracle(self, a: Array, b: Array) -> Array:
        chosen = np.where(self.picks(a, b), a, b)
        return np.where(np.isnan(a) | np.isnan(b), np.nan, chosen)


@dataclass(frozen=True)
class Max(_Extremum):
    """The larger of ``a`` and ``b``; NaN where either is."""

    stem = "maximum"
    ufunc = np.maximum
    picks = np.greater


@dataclass(frozen=True)
class Min(_Extremum):
    """The smaller of ``a`` and ``b``; NaN where either is."""

    stem = "minimum"
    ufunc = np.minimum
    picks = np.less
