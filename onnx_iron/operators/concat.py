"""Concat: tensors one after another along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import In, Kind, Op, Shape
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Concat(Op):
    """The operands one after another along ``axis``, counted from 0."""

    x = In(Kind.ANY)
    axis: int = 0
    domain = ""
    variadic = True
    moves = True

    def shape(self, *shapes: Shape) -> Shape:
        first, axis = shapes[0], self.axis
        for shape in shapes:
            if not 0 <= axis < len(shape) or shape[:axis] + shape[axis + 1 :] != (
                first[:axis] + first[axis + 1 :]
            ):
                raise ValueError(
                    f"Concat: shapes {', '.join(map(str, shapes))} differ outside of axis {axis}"
                )
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        for operand in operands:
            if isinstance(operand, Handle) and self.axis in operand.valid:
                raise ValueError(
                    f"Concat: {operand.name} is bounded by {operand.valid[self.axis]} along axis "
                    f"{self.axis}; its padding would stand in the middle"
                )
        return super().output_bounds(output, operands, shape)

    def reference(self, *arrays: Array) -> Array:
        return np.concatenate(arrays, axis=self.axis)

    def oracle(self, *arrays: Array) -> Array:
        return np.concatenate(arrays, axis=self.axis)

    def body(self, g: Body, *names: str) -> str:
        return g.op("Concat", *names, axis=self.axis)
