"""Copy, Narrow and SliceScatter: reading and writing a part of a tensor at a per-call place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Tensor
from onnx_iron.operators.base import Case, In, Kind, Op, Shape
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Copy(Op):
    """``x`` itself, in memory of its own; where it is given a part of a state, a write to it."""

    file = "copy"
    x = In()
    elementwise = True
    moves = True
    cases = (Case({"x": (4, 8)}), Case({"x": (3,)}))

    def shape(self, x: Shape) -> Shape:
        return x

    def reference(self, x: Array) -> Array:
        return np.array(x)

    def body(self, g: Body, x: str) -> str:
        result: str = g.op("Identity", x)
        return result

    @classmethod
    def step(cls, *operands: Any, **named: Any) -> Any:
        """Record a copy: ``Copy.step(source)`` returns its handle, ``Copy.step(source,
        destination)`` writes a state or a part of one.
        """
        if len(operands) != 2:
            return super().step(*operands, **named)
        source, destination = operands
        if named or not isinstance(destination, Tensor):
            raise TypeError(
                f"Copy.step(source, destination): the destination is {destination!r}; it must be "
                "a state or a part of one"
            )
        destination[...] = source
        return None


@dataclass(frozen=True)
class Narrow(Op):
    """``length`` entries of ``x`` from ``start`` along ``axis``, as ``torch.narrow``.

    Only the first ``rows`` of them (all, where not given) must exist; what is past the end of x
    repeats its last entry.
    """

    file = "narrow"
    x = In()
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

    def check_call(self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> None:
        check_place(self.length, shapes["x"][self.axis], values)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        return 2 * math.prod(output)

    def reference(self, x: Array, start: int, rows: int | None = None) -> Array:
        self.check_call({"x": x.shape}, place_values(start, rows))
        indices = np.minimum(np.arange(start, start + self.length), x.shape[self.axis] - 1)
        taken: Array = x.take(indices, axis=self.axis)
        return taken

    def body(self, g: Body, x: str, start: str, rows: str | None = None) -> str:
        first = g.scalar(start)
        indices = g.op("Range", first, g.op("Add", first, g.attribute("length")), g.integer(1))
        last = g.op("Sub", g.size(x, g.attribute("axis")), g.integer(1))
        result: str = g.op("Gather", x, g.op("Min", indices, last), axis=self.axis)
        return result

    built_in = ("axis",)


@dataclass(frozen=True)
class SliceScatter(Op):
    """``x`` with the first ``rows`` entries of ``src`` (all, where not given) in place of its own
    from ``start`` along ``axis``, as ``torch.slice_scatter``.
    """

    file = "slice_scatter"
    x = In()
    src = In()
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

    def check_call(self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> None:
        check_place(shapes["src"][self.axis], shapes["x"][self.axis], values)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        return 2 * math.prod(shapes["src"])  # the rest of a state stays where it is

    def reference(self, x: Array, src: Array, start: int, rows: int | None = None) -> Array:
        self.check_call({"x": x.shape, "src": src.shape}, place_values(start, rows))
        count = src.shape[self.axis] if rows is None else rows
        before = (slice(None),) * self.axis
        y = x.copy()
        y[(*before, slice(start, start + count))] = src[(*before, slice(count))]
        return y

    def body(self, g: Body, x: str, src: str, start: str, rows: str | None = None) -> str:
        # Every entry of x asks which one of src it would be, so no index can be out of range.
        axis, zero, one = g.integer(self.axis), g.integer(0), g.integer(1)
        count = g.size(src, axis)
        entry = g.op("Sub", g.op("Range", zero, g.size(x, axis), one), g.scalar(start))
        written = g.scalar(rows) if rows is not None else count
        taken = g.op("And", g.op("GreaterOrEqual", entry, zero), g.op("Less", entry, written))
        index = g.op("Max", g.op("Min", entry, g.op("Sub", count, one)), zero)
        gathered = g.op("Gather", g.widen(src), index, axis=self.axis)
        behind = len(g.shape("x")) - self.axis - 1
        mask = g.op("Reshape", taken, g.ints(-1, *[1] * behind))
        return g.narrow_like(g.op("Where", mask, gathered, g.widen(x)), x)

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        x = shapes[0]
        assert x is not None
        return f"{len(x)}d"


def check_place(length: int, size: int, values: Mapping[str, Sequence[int]]) -> None:
    """``rows`` of ``length`` entries (all, where not given) from ``start`` fit in ``size``.

    Raises:
        ValueError: they do not.
    """
    start = values["start"][0]
    rows = next(iter(values.get("rows", ())), length)
    if not 0 <= rows <= length:
        raise ValueError(f"rows is {rows}, expected 0..{length}")
    if not 0 <= start <= size - rows:
        raise ValueError(
            f"start is {start} and rows {rows}, expected 0 <= start <= {size - rows} (the axis has "
            f"{size} entries)"
        )


def place_values(start: int, rows: int | None) -> dict[str, Sequence[int]]:
    """The per-call values as ``check_call`` takes them."""
    return {"start": [start]} if rows is None else {"start": [start], "rows": [rows]}
