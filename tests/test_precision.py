"""What a product's Precision means: how exact it is at the least."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels import BF16, F32, assert_same_bits, normal, run
from networks import Network

from onnx_iron import Precision
from onnx_iron import functional as F

EVERY = pytest.mark.parametrize("precision", list(Precision), ids=str)


@EVERY
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_product_has_the_same_bits_at_every_precision(
    rows: int, dtype: np.dtype, precision: Precision
) -> None:
    a, b = normal(rows, 130, dtype=dtype), normal(37, 130, dtype=dtype, seed=1)
    highest = run("GEMM", [a, b], (rows, 37), dtype, b_col_maj=1, precision="highest")
    for op in ("GEMM", "ProjectionGEMM"):
        got = run(op, [a, b], (rows, 37), dtype, b_col_maj=1, precision=str(precision))
        assert_same_bits(got, highest)


@EVERY
@pytest.mark.parametrize("rows", [1, 5])
def test_float32_is_not_multiplied_as_bfloat16(rows: int, precision: Precision) -> None:
    """1 + 2**-12 is 1 in bfloat16, and its products with whole numbers are exact in float32."""
    weight = np.full((4, 8), 1 + 2**-12, np.float32)
    x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    graph = Network(lambda self, x: F.linear(x, weight, precision=precision))
    np.testing.assert_array_equal(
        graph(x), (x.astype(np.float64) @ weight.T.astype(np.float64)).astype(np.float32)
    )
