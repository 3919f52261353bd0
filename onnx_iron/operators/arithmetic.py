"""Add, Sub, Mul and Div, elementwise with numpy's broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import FLOATS, INT32, INT64, Array
from onnx_iron.operators.base import Case, In, Kind, Op, Shape, widen
from onnx_iron.operators.body import Body


def broadcast_shape(name: str, a: Shape, b: Shape) -> Shape:
    """The shape that two broadcast to.

    Raises:
        ValueError: they don't.
    """
    # In Python's comparisons, which know of dimensions that are open in a model.
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    shape = []
    for one, other in pairs:
        if one != other and one != 1 and other != 1:
            raise ValueError(f"{name}: shapes {a} and {b} do not broadcast")
        shape.append(other if one == 1 else one)
    return tuple(shape)


def whole(operand: Any) -> Array:
    """An operand as it is computed with: floats in float32, integers as they are, one that is
    known at each call only as an int32.
    """
    array = np.asarray(operand, None if isinstance(operand, np.ndarray | np.generic) else INT32)
    return widen(array) if array.dtype in FLOATS else array


class Binary(Op):
    """A function of two operands, element by element: a ufunc of numpy's, which the standard
    operator of the same name computes too.
    """

    elementwise = True
    cases: ClassVar[tuple[Case, ...]] = (
        Case({"a": (4, 64), "b": (4, 64)}),
        Case({"a": (5, 33), "b": (33,)}),
        Case({"a": (5, 1), "b": (1, 7)}),
        Case({"a": (), "b": (3, 8)}),
    )
    ufunc: ClassVar[Any]

    def shape(self, a: Shape, b: Shape) -> Shape:
        return broadcast_shape(self.name, a, b)

    def reference(self, a: Array, b: Array) -> Array:
        dtype = next((x.dtype for x in (a, b) if isinstance(x, np.ndarray)), INT32)
        with np.errstate(all="ignore"):
            result = self.compute(whole(a), whole(b))
        return np.asarray(result.astype(dtype))

    def compute(self, a: Array, b: Array) -> Array:
        """The function of float32 or of integer operands."""
        return np.asarray(self.ufunc(a, b))

    def oracle(self, a: Array, b: Array) -> Array:
        return np.asarray(self.ufunc(a, b))

    def body(self, g: Body, a: str, b: str) -> str:
        return g.narrow_like(g.op(self.name, g.widen(a), g.widen(b)), a)


class _Arithmetic(Binary):
    a = In(Kind.NUMBER)
    b = In(Kind.NUMBER)


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
    """``a / b``; of integers, towards zero."""

    stem = "div"
    ufunc = np.divide

    def compute(self, a: Array, b: Array) -> Array:
        if a.dtype not in (INT32, INT64):
            return super().compute(a, b)
        if np.any(b == 0):
            raise ValueError("Div: an element of b is 0, expected divisors other than 0")
        return np.asarray((a - np.fmod(a, b)) // b)
