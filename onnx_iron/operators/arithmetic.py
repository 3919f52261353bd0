"""Add, Sub, Mul and Div, elementwise with numpy's broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Op, Shape, narrow_like, widen
from onnx_iron.operators.body import Body


class _Arithmetic(Op):
    a = In()
    b = In()
    elementwise = True
    cases = (
        Case({"a": (4, 64), "b": (4, 64)}),
        Case({"a": (5, 33), "b": (33,)}),
        Case({"a": (5, 1), "b": (1, 7)}),
        Case({"a": (), "b": (3, 8)}),
    )
    ufunc: ClassVar[Any]

    def shape(self, a: Shape, b: Shape) -> Shape:
        # In Python's comparisons, which know of dimensions that are open in a model.
        rank = max(len(a), len(b))
        pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
        shape = []
        for one, other in pairs:
            if one != other and one != 1 and other != 1:
                raise ValueError(f"{self.name}: shapes {a} and {b} do not broadcast")
            shape.append(other if one == 1 else one)
        return tuple(shape)

    def reference(self, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow_like(self.ufunc(widen(a), widen(b)), a)

    def oracle(self, a: Array, b: Array) -> Array:
        return np.asarray(self.ufunc(a, b))

    def body(self, g: Body, a: str, b: str) -> str:
        return g.narrow_like(g.op(self.name, g.widen(a), g.widen(b)), a)


@dataclass(frozen=True)
class Add(_Arithmetic):
    """``a + b``."""

    stem = "add"
    ufunc = np.add


@dataclass(frozen=True)
class Sub(_Arithmetic):
    """``a - b``."""

    stem = "sub"
    ufunc = np.subtract


@dataclass(frozen=True)
class Mul(_Arithmetic):
    """``a * b``."""

    stem = "mul"
    ufunc = np.multiply


@dataclass(frozen=True)
class Div(_Arithmetic):
    """``a / b``."""

    stem = "div"
    ufunc = np.divide
