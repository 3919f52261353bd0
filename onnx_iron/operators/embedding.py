"""Embedding: rows of a table by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.trace import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import Case, In, Kind, Op, Shape
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Embedding(Op):
    """``weight[ids]``: for each id its row."""

    weight = In()
    ids = In(Kind.INDEX)
    cases = (
        Case({"weight": (11, 8), "ids": (5,)}),
        Case({"weight": (3, 64), "ids": (2, 4)}),
        Case({"weight": (3, 64), "ids": ()}),
    )

    def shape(self, weight: Shape, ids: Shape) -> Shape:
        if len(weight) != 2:
            raise ValueError(f"Embedding.weight is {weight}; it must be (entries, width)")
        return (*ids, weight[1])

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        ids = operands[1]
        return dict(ids.valid) if isinstance(ids, Handle) else {}

    def reference(self, weight: Array, ids: Array) -> Array:
        outside = (ids < 0) | (ids >= weight.shape[0])
        if outside.any():
            place = int(outside.reshape(-1).argmax())
            raise ValueError(
                f"ids[{place}] is {int(ids.reshape(-1)[place])}, expected 0..{weight.shape[0] - 1}"
            )
        return weight[ids]

    def body(self, g: Body, weight: str, ids: str) -> str:
        result: str = g.op("Gather", weight, ids, axis=0)
        return result
