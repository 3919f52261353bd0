"""Equal, Less, LessOrEqual, Greater and GreaterOrEqual, elementwise with numpy's broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import BOOL, Array
from onnx_iron.operators.arithmetic import Binary, whole
from onnx_iron.operators.base import Case, In, Kind
from onnx_iron.operators.body import Body


class _Compare(Binary):
    a = In(Kind.NUMBER)
    b = In(Kind.NUMBER)
    results: ClassVar = {"y": BOOL}
    cases: ClassVar = (Case({"a": (5, 33), "b": (33,)}), Case({"a": (5, 1), "b": (1, 7)}))
    ufunc: ClassVar[Any]
    sign: ClassVar[tuple[int, ...]]

    def reference(self, a: Array, b: Array) -> Array:
        return np.asarray(self.ufunc(whole(a), whole(b)))

    def oracle(self, a: Array, b: Array) -> Array:
        order = np.asarray(np.greater(a, b), np.int8) - np.asarray(np.less(a, b), np.int8)
        return np.isin(order, self.sign) & ~(np.isnan(a) | np.isnan(b))

    def body(self, g: Body, a: str, b: str) -> str:
        return g.op(self.name, g.widen(a), g.widen(b))


@dataclass(frozen=True)
class Equal(_Compare):
    """``a == b``; False where either is NaN."""

    a = In(Kind.ANY)
    b = In(Kind.ANY)
    ufunc = np.equal
    sign = (0,)


@dataclass(frozen=True)
class Less(_Compare):
    """``a < b``; False where either is NaN."""

    ufunc = np.less
    sign = (-1,)


@dataclass(frozen=True)
class LessOrEqual(_Compare):
    """``a <= b``; False where either is NaN."""

    ufunc = np.less_equal
    sign = (-1, 0)


@dataclass(frozen=True)
class Greater(_Compare):
    """``a > b``; False where either is NaN."""

    ufunc = np.greater
    sign = (1,)


@dataclass(frozen=True)
class GreaterOrEqual(_Compare):
    """``a >= b``; False where either is NaN."""

    ufunc = np.greater_equal
    sign = (0, 1)
