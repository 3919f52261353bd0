"""Embedding: rows of a table by their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import Case, In, Kind, Limit, Op, Shape
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Embedding(Op):
    """``weight[ids]``: for each id its row."""

    weight = In(Kind.ANY)
    ids = In(Kind.INDEX)
    moves = True
    cases = (
        Case({"weight": (11, 8), "ids": (5,)}),
        Case({"weight": (3, 64), "ids": (2, 4)}),
        Case({"weight": (3, 64), "ids": ()}),
    )

    def shape(self, weight: Shape, ids: Shape) -> Shape:
        if len(weight) != 2:
            raise ValueError(f"Embedding.weight is {weight}; it must be (entries, width)")
        return (*ids, weight[1])

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        entries = shapes["weight"][0]
        for place, number in enumerate(values["ids"]):
            message = f"ids[{place}] is {number}, expected 0..{entries - 1}"
            yield Limit(number, 0, entries - 1, "weight", entries, message)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        return 2 * math.prod(output)

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        ids = operands[1]
        return dict(ids.valid) if isinstance(ids, Handle) else {}

    def reference(self, weight: Array, ids: Array) -> Array:
        self.check_call({"weight": weight.shape}, {"ids": ids.reshape(-1).tolist()})
        return weight[ids]

    def oracle(self, weight: Array, ids: Array) -> Array:
        return np.take(weight, ids, axis=0)

    def body(self, g: Body, weight: str, ids: str) -> str:
        # Gather counts a negative index from the end; one past the end it refuses.
        zero, wide = g.integer(0), g.op("Cast", ids, to=TensorProto.INT64)
        index = g.op("Where", g.op("Less", wide, zero), g.size(weight, zero), wide)
        return g.op("Gather", weight, index, axis=0)

    def standard(self, g: Body, weight: str, ids: str) -> str:
        return g.op("Gather", weight, ids, axis=0)
