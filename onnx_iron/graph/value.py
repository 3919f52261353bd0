"""Integers that are known at each call only: a position, a number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, floordiv, ge, gt, index, le, lt, mod, mul, sub
from typing import Any, NoReturn, SupportsIndex, TypeAlias, TypeGuard

import numpy as np

from onnx_iron.graph.refusals import Unknown


@dataclass(frozen=True)
class FloorDiv:
    """``numerator // divisor`` where the division can't be carried out on the terms."""

    numerator: Value
    divisor: int


@dataclass(frozen=True)
class Extremum:
    """``min(left, right)``, or ``max(left, right)``."""

    name: str
    left: Value
    right: Value


# Quotients and extrema inside of one another that an expression has at the most.
MOST_QUOTIENTS = 16

# What a term multiplies: a per-call value's name, a quotient or an extremum.
Symbol: TypeAlias = str | FloorDiv | Extremum


# The operators that numpy's integers hand over.
_ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: add,
    np.subtract: sub,
    np.multiply: mul,
    np.floor_divide: floordiv,
    np.remainder: mod,
    np.less: lt,
    np.less_equal: le,
    np.greater: gt,
    np.greater_equal: ge,
}


class Value(Unknown):
    """An affine expression over per-call integers: ``sum(factor * symbol) + constant``.

    ``+``, ``-``, ``*``, ``//`` and ``%`` by integers give further expressions; sums, differences,
    ``minimum``, ``maximum`` and comparisons (1 where it holds, else 0) of two expressions too. It
    is evaluated at each call, so it has no truth value and no ``int()``.
    """

    __slots__ = ("constant", "terms")

    def __init__(self, terms: Mapping[Symbol, int], constant: int = 0) -> None:
        self.terms = tuple((symbol, factor) for symbol, factor in terms.items() if factor)
        self.constant = int(constant)

    @classmethod
    def named(cls, name: str) -> Value:
        """The per-call value of that name."""
        return cls({name: 1})

    def __add__(self, other: int | Value) -> Value:
        if isinstance(other, Value):
            terms = dict(self.terms)
            for symbol, factor in other.terms:
                terms[symbol] = terms.get(symbol, 0) + factor
            return Value(terms, self.constant + other.constant)
        if not _is_integer(other):
            return NotImplemented
        return Value(dict(self.terms), self.constant + index(other))

    def __mul__(self, other: int) -> Value:
        if isinstance(other, Value):
            raise TypeError(
                f"({self}) * ({other}): a per-call value is multiplied by an integer only"
            )
        if not _is_integer(other):
            return NotImplemented
        factor = index(other)
        return Value({s: f * factor for s, f in self.terms}, self.constant * factor)

    def __floordiv__(self, other: int) -> Value:
        if not _is_integer(other):
            return NotImplemented
        divisor = index(other)
        if divisor <= 0:
            raise ValueError(f"({self}) // {divisor}: the divisor must be positive")
        if self.constant % divisor == 0 and all(f % divisor == 0 for _, f in self.terms):
            return Value({s: f // divisor for s, f in self.terms}, self.constant // divisor)
        self._check_depth()
        return Value({FloorDiv(self, divisor): 1})

    def __mod__(self, other: int) -> Value:
        if not _is_integer(other):
            return NotImplemented
        divisor = index(other)
        return self - (self // divisor) * divisor

    def minimum(self, other: int | Value) -> Value:
        """The smaller of two."""
        return self._extremum("min", other)

    def maximum(self, other: int | Value) -> Value:
        """The larger of two."""
        return self._extremum("max", other)

    def clamp(self, min: int | Value | None = None, max: int | Value | None = None) -> Value:
        """``min`` where it is less, ``max`` where it is more; either may be left out."""
        above = self if min is None else self.maximum(min)
        return above if max is None else above.minimum(max)

    def _extremum(self, name: str, other: int | Value) -> Value:
        if not isinstance(other, Value) and not _is_integer(other):
            raise TypeError(f"{name}({self}, {other!r}): expected an integer or a per-call value")
        right = other if isinstance(other, Value) else Value({}, index(other))
        difference = (self - right).fixed()
        if difference is not None:  # one of them is always it
            return self if (difference < 0) == (name == "min") else right
        self._check_depth()
        right._check_depth()
        return Value({Extremum(name, self, right): 1})

    def __gt__(self, other: int | Value) -> Value:
        if not isinstance(other, Value) and not _is_integer(other):
            self._unknown(f"comparison with {other!r}")
        return (self - other).clamp(0, 1)

    def __lt__(self, other: int | Value) -> Value:
        if not isinstance(other, Value) and not _is_integer(other):
            self._unknown(f"comparison with {other!r}")
        return (-(self - other)).clamp(0, 1)

    def __ge__(self, other: int | Value) -> Value:
        return 1 - (self < other)

    def __le__(self, other: int | Value) -> Value:
        return 1 - (self > other)

    def _check_depth(self) -> None:
        if self._depth() == MOST_QUOTIENTS:
            raise ValueError(
                f"a per-call value is divided, or compared, {MOST_QUOTIENTS + 1} times in a row; "
                f"{MOST_QUOTIENTS} is the most: give the body another per-call value instead"
            )

    def _depth(self) -> int:
        """How many quotients and extrema there are inside of one another."""
        parts = [part for symbol, _ in self.terms for part in _parts(symbol)]
        return max((1 + part._depth() for part in parts), default=0)

    def __neg__(self) -> Value:
        return self * -1

    def __sub__(self, other: int | Value) -> Value:
        if not isinstance(other, Value) and not _is_integer(other):
            return NotImplemented
        return self + (-other if isinstance(other, Value) else -index(other))

    def __rsub__(self, other: int) -> Value:
        return (-self) + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Value):
            return (dict(self.terms), self.constant) == (dict(other.terms), other.constant)
        if _is_integer(other):
            self._unknown("comparison")
        return False

    def __hash__(self) -> int:
        return hash((frozenset(self.terms), self.constant))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        # numpy's integers ask for this, and an array would: of expressions it would be none.
        integers = all(isinstance(x, Value) or _is_integer(x) for x in inputs)
        if ufunc in _ARITHMETIC and method == "__call__" and integers and not options:
            return _ARITHMETIC[ufunc](*(x if isinstance(x, Value) else index(x) for x in inputs))
        return super().__array_ufunc__(ufunc)

    def __truediv__(self, other: object) -> NoReturn:
        self._unknown("/ that gives an integer", "use //, which rounds down")

    def __rfloordiv__(self, other: object) -> NoReturn:
        self._unknown("integer divided by it")

    __rtruediv__ = __rfloordiv__

    def _unknown(self, what: str, instead: str = "") -> NoReturn:
        first = f"; {instead}" if instead.startswith("use //") else ""
        raise TypeError(
            f"{self} is a per-call value, known only when the graph runs: it has no {what}{first}. "
            "Use it to index, to slice or to bound an axis of a handle, a state or a Weight "
            "(Weight.of(array) makes one)"
        )

    def fixed(self) -> int | None:
        """The integer it always is, or None where it depends on the call."""
        return None if self.terms else self.constant

    def names(self) -> Iterator[str]:
        """The per-call values that it depends on."""
        for symbol, _ in self.terms:
            if isinstance(symbol, str):
                yield symbol
            for part in _parts(symbol):
                yield from part.names()

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer for one call's values."""
        total = self.constant
        for symbol, factor in self.terms:
            if isinstance(symbol, FloorDiv):
                total += factor * (symbol.numerator.evaluate(values) // symbol.divisor)
            elif isinstance(symbol, Extremum):
                pick = min if symbol.name == "min" else max
                total += factor * pick(part.evaluate(values) for part in _parts(symbol))
            else:
                total += factor * values[symbol]
        return total

    def __str__(self) -> str:
        parts = []
        for symbol, factor in self.terms:
            text = (
                f"(({symbol.numerator}) // {symbol.divisor})"
                if isinstance(symbol, FloorDiv)
                else f"{symbol.name}({symbol.left}, {symbol.right})"
                if isinstance(symbol, Extremum)
                else symbol
            )
            parts.append(text if factor == 1 else f"{factor} * {text}")
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Value({self})"


def _parts(symbol: Symbol) -> tuple[Value, ...]:
    """The expressions that a symbol is made of."""
    if isinstance(symbol, FloorDiv):
        return (symbol.numerator,)
    return (symbol.left, symbol.right) if isinstance(symbol, Extremum) else ()


def _is_integer(value: object) -> TypeGuard[SupportsIndex]:
    # numpy's integers too, but no bool: a flag in an index is a mistake.
    if isinstance(value, bool | Value):
        return False
    try:
        index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def evaluate(value: int | Value, values: Mapping[str, int]) -> int:
    """``value`` as an integer, whether it depends on the call or not."""
    return value.evaluate(values) if isinstance(value, Value) else int(value)
