"""GEMM and ProjectionGEMM: products of matrices, accumulated in float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import Attribute, Case, In, Op, Shape, Tolerance, narrow_like
from onnx_iron.operators.body import Body
from onnx_iron.operators.gelu import gelu, gelu_body
from onnx_iron.operators.rows import row_bounds, row_products
from onnx_iron.operators.silu import silu, silu_body


class Precision(StrEnum):
    """How exact a product is at the least, by jax.lax.Precision's names.

    HIGHEST multiplies in float32. DEFAULT and HIGH may multiply in bfloat16, with float32 sums,
    where both operands are bfloat16; float32 ones are multiplied in float32 at every precision, for
    one row alone, a GEMV's, always is. On the CPU all of them have the same bits: a product of two
    bfloat16 is exact in float32, and a processor's own instruction for it (AVX-512-BF16) is taken
    where it gives what float32 gives. The NPU's kernels that are here multiply bfloat16, with
    float32 sums and one rounding, whatever the precision is.
    """

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"


class Epilogue(StrEnum):
    """What ProjectionGEMM does to its float32 sums before it rounds them."""

    NONE = "none"
    GELU = "gelu"
    SILU = "silu"
    SIGMOID = "sigmoid"


class _Product(Op):
    """What GEMM and ProjectionGEMM share: two operands, B by rows or by columns."""

    a = In()
    b = In()
    b_col_maj: bool
    precision: Precision
    tolerance = Tolerance(4, 1, "a float32 sum of K products, in some order", of_magnitude=2**-21)

    def shape(self, a: Shape, b: Shape) -> Shape:
        if len(a) != 2 or len(b) != 2:
            raise ValueError(f"{self.name}: a is {a} and b {b}; both must be matrices")
        inner, columns = (b[1], b[0]) if self.b_col_maj else b
        if a[1] != inner:
            wanted = f"(n, {a[1]})" if self.b_col_maj else f"({a[1]}, n)"
            raise ValueError(f"{self.name}.b is {b}; a is {a}, so it must be {wanted}")
        return (a[0], columns)

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        return 2 * math.prod(output) * shapes["a"][-1]

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        return row_bounds(self.name, operands[0], operands[1], shape)

    def magnitude(self, a: Array, b: Array) -> Array:
        return np.asarray(np.abs(a) @ np.abs(b.T if self.b_col_maj else b))

    def sums(self, a: Array, b: Array) -> Array:
        """The float32 sums."""
        return row_products(a, b.T if self.b_col_maj else b)

    def sums_body(self, g: Body, a: str, b: str) -> str:
        """The float32 sums in standard operators."""
        wide = g.widen(b)
        if self.b_col_maj:
            wide = g.op("Transpose", wide, perm=[1, 0])
        return g.op("MatMul", g.widen(a), wide)


_PRODUCT_CASES = (
    Case({"a": (4, 64), "b": (48, 64)}, {"b_col_maj": True}),
    Case({"a": (4, 64), "b": (64, 48)}),
    Case({"a": (9, 33), "b": (7, 33)}, {"b_col_maj": True}),
)


@dataclass(frozen=True)
class GEMM(_Product):
    """``a @ b`` of matrices, or ``a @ b.T`` where ``b_col_maj``, accumulated in float32."""

    file = "gemm"
    b_col_maj: bool = False
    precision: Precision = Precision.HIGHEST
    built_in = ("b_col_maj",)
    cases = _PRODUCT_CASES

    def reference(self, a: Array, b: Array) -> Array:
        return narrow_like(self.sums(a, b), a)

    def oracle(self, a: Array, b: Array) -> Array:
        return np.asarray(a @ (b.T if self.b_col_maj else b))

    def body(self, g: Body, a: str, b: str) -> str:
        return g.narrow_like(self.sums_body(g, a, b), a)


@dataclass(frozen=True)
class ProjectionGEMM(_Product):
    """GEMM at a precision, with an epilogue on the float32 sums.

    ``epilogue_modes`` holds one mode, the whole product's.
    """

    stem = "projection_gemm"
    b_col_maj: bool = False
    precision: Precision = Precision.DEFAULT
    epilogue_modes: tuple[Epilogue, ...] = (Epilogue.NONE,)
    built_in = ("b_col_maj", "epilogue")
    cases = (
        *_PRODUCT_CASES,
        *(
            Case({"a": (4, 32), "b": (16, 32)}, {"b_col_maj": True, "epilogue_modes": (mode,)})
            for mode in (Epilogue.GELU, Epilogue.SILU, Epilogue.SIGMOID)
        ),
    )

    def __post_init__(self) -> None:
        if len(self.epilogue_modes) != 1:
            raise ValueError(
                f"ProjectionGEMM.epilogue_modes is {self.epilogue_modes}; it holds one mode"
            )

    def attributes(self) -> dict[str, Attribute]:
        return {
            "b_col_maj": int(self.b_col_maj),
            "precision": self.precision,
            "epilogue": self.epilogue_modes[0],
        }

    @classmethod
    def onnx_attributes(cls) -> dict[str, tuple[type, Attribute | None]]:
        return {
            "b_col_maj": (int, 0),
            "precision": (str, Precision.DEFAULT.value),
            "epilogue": (str, Epilogue.NONE.value),
        }

    @classmethod
    def _converted_fields(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        renamed = {"epilogue_modes" if k == "epilogue" else k: v for k, v in values.items()}
        return super()._converted_fields(renamed)

    def reference(self, a: Array, b: Array) -> Array:
        sums = self.sums(a, b).astype(np.float64)
        match self.epilogue_modes[0]:
            case Epilogue.GELU:
                sums = gelu(sums)
            case Epilogue.SILU:
                sums = silu(sums)
            case Epilogue.SIGMOID:
                with np.errstate(over="ignore"):
                    sums = 1 / (1 + np.exp(-sums))
        return narrow_like(sums, a)

    def oracle(self, a: Array, b: Array) -> Array:
        from scipy.special import expit, ndtr

        sums = np.asarray(a @ (b.T if self.b_col_maj else b))
        match self.epilogue_modes[0]:
            case Epilogue.GELU:
                return np.asarray(sums * ndtr(sums))
            case Epilogue.SILU:
                return np.asarray(sums * expit(sums))
            case Epilogue.SIGMOID:
                return np.asarray(expit(sums))
        return sums

    def body(self, g: Body, a: str, b: str) -> str:
        sums = self.sums_body(g, a, b)
        match self.epilogue_modes[0]:
            case Epilogue.GELU:
                sums = gelu_body(g, sums)
            case Epilogue.SILU:
                sums = silu_body(g, sums)
            case Epilogue.SIGMOID:
                sums = g.op("Sigmoid", sums)
        return g.narrow_like(sums, a)
