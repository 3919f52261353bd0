"""Numbers that follow from the shapes of a call, kept with how they follow, so that a program that
was planned for some shapes is one for others."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from onnx_iron.dtypes import Shape

CONSTANT, DIM, ADD, SUB, MUL, FLOOR_DIV, MOD = range(7)
EQUAL, LESS, LESS_EQUAL = range(3)

_INT64 = range(-(1 << 63), 1 << 63)


class Numbers:
    """A table of numbers, each made of earlier ones, and what was asked about them.

    Attributes:
        rows: (operation, a, b): CONSTANT a; DIM of input a, axis b; else of rows a and b.
        values: what they are for the shapes that the program is planned with.
        answers: by (relation, row, row) whether it holds. The plan is right for all shapes for
            which they do, for nothing else of a number has an influence on it.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []
        self.values: list[int] = []
        self.answers: dict[tuple[int, int, int], bool] = {}
        self._known: dict[tuple[int, int, int], int] = {}

    def dim(self, value: int, number: int, axis: int) -> int:
        """A dimension of an input, which stands for itself in another call."""
        return cast(int, Symbol(self, self._row(DIM, number, axis, value)))

    def fix(self, value: int, number: int, axis: int) -> int:
        """A dimension of an input, which is this one in every call that the plan is for."""
        self.ask(EQUAL, self._row(DIM, number, axis, value), self.row(value))
        return value

    def row(self, value: int | Symbol) -> int:
        """Where a number is in the table."""
        if isinstance(value, Symbol):
            return value.row
        if value not in _INT64:
            raise OverflowError(f"{value} does not fit into 64 bits")
        return self._row(CONSTANT, int(value), 0, int(value))

    def make(self, operation: int, a: int | Symbol, b: int | Symbol, value: int) -> int:
        """A number that is made of two others."""
        return cast(int, Symbol(self, self._row(operation, self.row(a), self.row(b), value)))

    def ask(self, relation: int, a: int, b: int) -> bool:
        """Whether a relation of two rows holds; that it does, or not, is kept."""
        if a == b:
            return relation != LESS
        x, y = self.values[a], self.values[b]
        holds = x == y if relation == EQUAL else x < y if relation == LESS else x <= y
        self.answers[relation, a, b] = holds
        return holds

    def are_equal(self, a: int, b: int) -> bool:
        """Whether two rows are equal wherever the plan is right, as far as it is known by now."""
        return a == b or self.answers.get((EQUAL, a, b), self.answers.get((EQUAL, b, a), False))

    def _row(self, operation: int, a: int, b: int, value: int) -> int:
        key = operation, a, b
        row = self._known.setdefault(key, len(self.rows))
        if row == len(self.rows):
            self.rows.append(key)
            self.values.append(value)
        return row


class Symbol:
    """A number that another call has another value of. Whoever needs its value (as an index, in a
    hash), gets it, and the plan is then for that value alone."""

    __slots__ = ("_numbers", "row")
    __array_ufunc__ = None

    def __init__(self, numbers: Numbers, row: int) -> None:
        self._numbers = numbers
        self.row = row

    def value(self) -> int:
        """What it is in the call that the plan is made with."""
        return self._numbers.values[self.row]

    def origin(self) -> tuple[int, int] | None:
        """The input and the axis that it is a dimension of; None where it is computed."""
        operation, number, axis = self._numbers.rows[self.row]
        return (number, axis) if operation == DIM else None

    def _make(self, operation: int, a: Any, b: Any) -> Any:
        x, y = (item.value() if isinstance(item, Symbol) else item for item in (a, b))
        if not (_is_integer(x) and _is_integer(y)):
            return NotImplemented
        value = _COMPUTE[operation](int(x), int(y))
        return self._numbers.make(operation, a, b, value)

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._make(ADD, self, other)

    def __radd__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._make(ADD, other, self)

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._make(SUB, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._make(SUB, other, self)

    def __mul__(self, other: Any) -> Any:
        return self if _is(other, 1) else 0 if _is(other, 0) else self._make(MUL, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self if _is(other, 1) else 0 if _is(other, 0) else self._make(MUL, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self if _is(other, 1) else self._make(FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._make(FLOOR_DIV, other, self)

    def __mod__(self, other: Any) -> Any:
        return 0 if _is(other, 1) else self._make(MOD, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._make(MOD, other, self)

    def __neg__(self) -> Any:
        return 0 - self

    def _ask(self, relation: int, a: Any, b: Any) -> Any:
        if not all(isinstance(item, Symbol) or _is_integer(item) for item in (a, b)):
            return NotImplemented
        numbers = self._numbers
        return numbers.ask(relation, numbers.row(a), numbers.row(b))

    def __eq__(self, other: object) -> Any:
        return self._ask(EQUAL, self, other)

    def __lt__(self, other: Any) -> Any:
        return self._ask(LESS, self, other)

    def __le__(self, other: Any) -> Any:
        return self._ask(LESS_EQUAL, self, other)

    def __gt__(self, other: Any) -> Any:
        return self._ask(LESS, other, self)

    def __ge__(self, other: Any) -> Any:
        return self._ask(LESS_EQUAL, other, self)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        value = self.value()
        self._ask(EQUAL, self, value)
        return value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __repr__(self) -> str:
        return str(self.value())


def surely_equal(shape: Shape, other: Shape) -> bool:
    """Whether two shapes are equal in every call that the plan is for, without a question that
    would narrow these down."""
    return len(shape) == len(other) and all(map(_surely, shape, other))


def _surely(a: int, b: int) -> bool:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Symbol):
            return one._numbers.are_equal(one._numbers.row(one), one._numbers.row(other))
    return a == b


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer)


def _is(value: object, number: int) -> bool:
    return _is_integer(value) and value == number


_COMPUTE: dict[int, Any] = {
    ADD: int.__add__,
    SUB: int.__sub__,
    MUL: int.__mul__,
    FLOOR_DIV: int.__floordiv__,
    MOD: int.__mod__,
}
