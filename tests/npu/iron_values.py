"""What mlir-aie's programs compute with before anything is built: numbers, places, patterns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


class Value(int):
    """A number in a core's program, with its type in MLIR."""

    type: str

    def __new__(cls, number: int, of: str) -> Value:
        made = super().__new__(cls, number)
        made.type = of
        return made


class Tile:
    def __init__(self, col: int | None = None, row: int | None = None) -> None:
        self.col, self.row = col, row


class TensorAccessPattern:
    def __init__(
        self, tensor_dims: Sequence[int], offset: int, sizes: Sequence[int], strides: Sequence[int]
    ) -> None:
        if any(n < 1 for n in (*tensor_dims, *sizes)) or any(n < 0 for n in strides):
            raise ValueError(f"sizes {sizes} and strides {strides} over {tensor_dims}")
        if len(sizes) != len(strides):
            raise ValueError(f"{len(sizes)} sizes, {len(strides)} strides")
        self.size = math.prod(tensor_dims)
        if not 0 <= offset < self.size:
            raise ValueError(f"offset {offset} of {self.size}")
        self.offset, self.sizes, self.strides = offset, list(sizes), list(strides)
        for axis, size in enumerate(self.sizes[:-1]):
            if size != 1:
                break
            self.strides[axis] = 0

    @property
    def last(self) -> int:
        """The element furthest from the begin."""
        return self.offset + sum(
            (n - 1) * step for n, step in zip(self.sizes, self.strides, strict=True)
        )


def size_of(type_: Any) -> int:
    return math.prod(type_.__args__[0])


def dtype_of(type_: Any) -> np.dtype[Any]:
    return np.dtype(type_.__args__[1].__args__[0])


def bytes_of(type_: Any) -> int:
    return size_of(type_) * dtype_of(type_).itemsize


def loop(start: int, stop: int | None = None, step: int | None = None) -> Iterator[Value]:
    begin, end = (0, start) if stop is None else (start, stop)
    for number in range(begin, end, step or 1):
        yield Value(number, "index")


def _constant(type_: str, number: int) -> Value:
    assert type_ == "i32"
    assert type(number) is int
    assert -(1 << 31) <= number < 1 << 31, f"{number} is no 32-bit integer"
    return Value(number, "i32")


def _cast(type_: str, value: Value) -> Value:
    assert (type_, value.type) == ("i32", "index")
    return Value(value, "i32")


def _of_two(name: str) -> Any:
    function = {
        "addi": lambda a, b: a + b,
        "muli": lambda a, b: a * b,
        "minsi": min,
        "maxsi": max,
    }[name]

    def operation(lhs: Value, rhs: Value) -> Value:
        assert lhs.type == rhs.type == "i32", (name, lhs, rhs)
        return _constant("i32", int(function(int(lhs), int(rhs))))

    return operation


ARITHMETIC = {
    "constant": _constant,
    "index_cast": _cast,
    **{name: _of_two(name) for name in ("addi", "muli", "minsi", "maxsi")},
}
