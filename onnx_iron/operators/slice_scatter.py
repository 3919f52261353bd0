"""SliceScatter: writing entries at a per-call place."""

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
class SliceScatter(Op):
    """``x`` with the first ``rows`` entries of ``src`` (all, where not given) in place of its own
    from ``start`` along ``axis``, as ``torch.slice_scatter``.
    """

    x = In(Kind.ANY)
    src = In(Kind.ANY)
    start = In(Kind.SCALAR)
    rows = In(Kind.SCALAR, optional=True)
    axis: int = 0
    built_in = ("axis",)
    moves = True
    updates = (("x", "y"),)
    cases = (
        Case({"x": (9, 8), "src": (4, 8)}, {}, {"start": 2}),
        Case({"x": (9, 8), "src": (4, 8)}, {}, {"start": 8, "rows": 1}),
        Case({"x": (9, 8), "src": (4, 8)}, {}, {"start": 9, "rows": 0}),
        Case({"x": (2, 6, 3), "src": (2, 1, 3)}, {"axis": 1}, {"start": 5}),
    )

    def __post_init__(self) -> None:
        if self.axis < 0:
            raise ValueError(f"SliceScatter.axis is {self.axis}; it counts from the front, from 0")

    def shape(self, x: Shape, src: Shape, start: Shape, rows: Shape | None = None) -> Shape:
        axis = self.axis
        same = len(src) == len(x) and src[:axis] + src[axis + 1 :] == x[:axis] + x[axis + 1 :]
        if axis >= len(x) or not same or not 1 <= src[axis] <= x[axis]:
            raise ValueError(
                f"SliceScatter.src is {src}; x is {x}, so it must be the same but for axis {axis}, "
                "and no longer there"
            )
        return x

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        return place_limits(shapes["src"][self.axis], shapes["x"][self.axis], values)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        return 2 * math.prod(shapes["src"])  # the rest of a state stays where it is

    def reference(self, x: Array, src: Array, start: int, rows: int | None = None) -> Array:
        self.check_call({"x": x.shape, "src": src.shape}, place_values(start, rows))
        count = src.shape[self.axis] if rows is None else rows
        before = (slice(None),) * self.axis
        y = x.copy()
        y[(*before, slice(start, start + count))] = src[(*before, slice(count))]
        return y

    def oracle(self, x: Array, src: Array, start: int, rows: int | None = None) -> Array:
        y = x.copy()
        count = src.shape[self.axis] if rows is None else rows
        np.moveaxis(y, self.axis, 0)[start : start + count] = np.moveaxis(src, self.axis, 0)[:count]
        return y

    def body(self, g: Body, x: str, src: str, start: str, rows: str | None = None) -> str:
        # Every entry takes itself or one of src, which stand behind all of x: elements are moved
        # and not computed with, whatever their dtype.
        axis, zero, one = g.integer(self.axis), g.integer(0), g.integer(1)
        size = g.size(x, axis)
        place = g.op("Range", zero, size, one)
        entry = g.op("Sub", place, g.scalar(start))
        written = g.scalar(rows) if rows is not None else g.size(src, axis)
        taken = g.op("And", g.op("GreaterOrEqual", entry, zero), g.op("Less", entry, written))
        index = g.op("Where", taken, g.op("Add", entry, size), place)
        both = g.op("Concat", x, src, axis=self.axis)
        return g.op("Gather", both, index, axis=self.axis)

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        x = shapes[0]
        assert x is not None
        return f"{len(x)}d"
