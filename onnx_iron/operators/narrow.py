"""Narrow: reading entries at a per-call place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Case, In, Kind, Limit, Op, Shape
from onnx_iron.operators.body import Body
from onnx_iron.operators.place import place_limits, place_values


@dataclass(frozen=True)
class Narrow(Op):
    """``length`` entries of ``x`` from ``start`` along ``axis``, as ``torch.narrow``.

    Only the first ``rows`` of them (all, where not given) must exist; what is past the end of x
    repeats its last entry.
    """

    x = In(Kind.ANY)
    start = In(Kind.SCALAR)
    rows = In(Kind.SCALAR, optional=True)
    axis: int = 0
    length: int = 1
    moves = True
    cases = (
        Case({"x": (9, 8)}, {"length": 4}, {"start": 2}),
        Case({"x": (9, 8)}, {"length": 4}, {"start": 7, "rows": 2}),
        Case({"x": (2, 6, 3)}, {"axis": 1, "length": 1}, {"start": 5}),
    )

    def __post_init__(self) -> None:
        if self.length < 1 or self.axis < 0:
            raise ValueError(
                f"Narrow: length is {self.length} and axis {self.axis}; expected length >= 1 and "
                "axis >= 0"
            )

    def shape(self, x: Shape, start: Shape, rows: Shape | None = None) -> Shape:
        if self.axis >= len(x) or self.length > x[self.axis]:
            raise ValueError(f"Narrow.x is {x}; axis {self.axis} must have {self.length} entries")
        return (*x[: self.axis], self.length, *x[self.axis + 1 :])

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        return place_limits(self.length, shapes["x"][self.axis], values)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        return 2 * math.prod(output)

    def reference(self, x: Array, start: int, rows: int | None = None) -> Array:
        self.check_call({"x": x.shape}, place_values(start, rows))
        indices = np.minimum(np.arange(start, start + self.length), x.shape[self.axis] - 1)
        taken: Array = x.take(indices, axis=self.axis)
        return taken

    def oracle(self, x: Array, start: int, rows: int | None = None) -> Array:
        return np.take(x, range(start, start + self.length), axis=self.axis, mode="clip")

    def body(self, g: Body, x: str, start: str, rows: str | None = None) -> str:
        first = g.scalar(start)
        indices = g.op("Range", first, g.op("Add", first, g.attribute("length")), g.integer(1))
        last = g.op("Sub", g.size(x, g.attribute("axis")), g.integer(1))
        return g.op("Gather", x, g.op("Min", indices, last), axis=self.axis)

    built_in = ("axis",)
