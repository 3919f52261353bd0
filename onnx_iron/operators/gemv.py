"""GEMV: the product of a weight and one row, accumulated in float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import Case, In, Op, Shape, Tolerance, narrow_like
from onnx_iron.operators.body import Body
from onnx_iron.operators.rows import row_bounds, row_products


@dataclass(frozen=True)
class GEMV(Op):
    """``weight @ x`` for one row, accumulated in float32 and rounded once.

    Its tunables are kept with the step for a backend to read; none that is here does.
    """

    weight = In()
    x = In()
    tunables = ("num_aie_columns", "tile_size_input", "tile_size_output")
    tolerance = Tolerance(0, 1, "a float32 sum of K products, in some order", of_magnitude=2**-21)
    cases = (
        Case({"weight": (48, 64), "x": (64,)}),
        Case({"weight": (7, 33), "x": (1, 33)}),
        Case({"weight": (1, 1), "x": (1,)}),
    )

    def shape(self, weight: Shape, x: Shape) -> Shape:
        if len(weight) != 2:
            raise ValueError(f"GEMV.weight is {weight}; it must be (out, in)")
        if x not in ((weight[1],), (1, weight[1])):
            raise ValueError(
                f"GEMV.x is {x}; weight is {weight}, so it must be ({weight[1]},) or "
                f"(1, {weight[1]})"
            )
        return (*x[:-1], weight[0])

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        return 2 * math.prod(output) * shapes["x"][-1]

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        return row_bounds(self.name, operands[1], operands[0], shape)

    def reference(self, weight: Array, x: Array) -> Array:
        return narrow_like(row_products(x, weight.T), x)

    def oracle(self, weight: Array, x: Array) -> Array:
        return np.asarray(x @ weight.T)

    def magnitude(self, weight: Array, x: Array) -> Array:
        return self.oracle(np.abs(weight), np.abs(x))

    def body(self, g: Body, weight: str, x: str) -> str:
        transposed = g.op("Transpose", g.widen(weight), perm=[1, 0])
        return g.narrow_like(g.op("MatMul", g.widen(x), transposed), x)
