"""TopK over the last axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import INT64, Array
from onnx_iron.operators.base import Case, In, Op, Shape, widen
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class TopK(Op):
    """The ``k`` largest elements along the last axis, the largest first, and their places: of
    equals the first. A NaN ranks with infinity.
    """

    x = In()
    k: int = 1
    outputs = ("values", "indices")
    results: ClassVar = {"indices": INT64}
    reduces_last_axis = True
    built_in = ("k",)
    flops_each = 8
    cases = (
        Case({"x": (4, 64)}, {"k": 5}),
        Case({"x": (2, 3, 17)}, {"k": 17}),
        Case({"x": (37,)}, {"k": 1}),
    )

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        if not x or not 1 <= self.k <= x[-1]:
            raise ValueError(f"TopK.k is {self.k}; x is {x}, so it must be 1..{x[-1] if x else 0}")
        return (*x[:-1], self.k), (*x[:-1], self.k)

    def reference(self, x: Array) -> tuple[Array, Array]:
        wide = widen(x)
        ranked = np.where(np.isnan(wide), np.inf, wide)
        places = np.argsort(-ranked, axis=-1, kind="stable")[..., : self.k]
        return np.take_along_axis(x, places, -1), places

    def oracle(self, x: Array) -> tuple[Array, Array]:
        rows = np.where(np.isnan(x), np.inf, x).reshape(-1, x.shape[-1]).tolist()
        order = [sorted(range(len(row)), key=row.__getitem__, reverse=True) for row in rows]
        places = np.array(order, np.int64)[:, : self.k].reshape(*x.shape[:-1], self.k)
        return np.take_along_axis(x, places, -1), places

    def body(self, g: Body, x: str) -> tuple[str, str]:
        last = len(g.shape("x")) - 1
        wide = g.widen(x)
        ranked = g.op("Where", g.op("IsNaN", wide), g.real(math.inf), wide)
        _, indices = g.ops("TopK", ranked, g.vector(g.attribute("k")), outputs=2)
        # The elements themselves, a NaN too, by their places in all rows as one.
        width = g.size(x, g.integer(last))
        starts = g.op("Range", g.integer(0), g.op("Size", wide), width)
        before = g.span(g.op("Shape", x), g.ints(0), g.ints(last), 0)
        column = g.op("Reshape", starts, g.op("Concat", before, g.ints(1), axis=0))
        flat = g.op("Reshape", x, g.ints(-1))
        return g.op("Gather", flat, g.op("Add", indices, column), axis=0), indices

    def shape_variant(self, shapes: Any) -> str:
        return f"{len(shapes[0])}d"
