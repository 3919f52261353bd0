"""The elementwise AIE kernels, compiled for the host, against the operators' oracles."""

from __future__ import annotations

import numpy as np
import pytest
from aie_arrays import every_bfloat16, numbers
from design_cases import made
from exactness import Report, exact, flushed, hold, variants

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.kernels.aie.library import KernelLibrary, aligned, aligned_copy
from onnx_iron.kernels.designs import Design, Target
from onnx_iron.operators import Op

# -- arithmetic ---------------------------------------------------------------------------------

EDGES = [0, -0.0, 1, -1, 3, 2.0**-126, 2.0**127, -(2.0**127), 3.38e38, 1e-30]
ORDERED = ("sub", "div")
every_binary = pytest.mark.parametrize("op", variants(2), ids=str)


@every_binary
def test_arithmetic_of_all_pairs_of_extremes_and_of_random_bits(
    kernels: KernelLibrary, rng: np.random.Generator, record_property: Report, op: Op
) -> None:
    edges = np.array([*EDGES, np.inf, -np.inf, np.nan]).astype(BFLOAT16)
    pairs = np.stack(np.meshgrid(edges, edges)).reshape(2, -1)
    random = rng.integers(0, 1 << 16, (2, (1 << 16) - pairs.shape[1]), np.uint16).view(BFLOAT16)
    a, b = (aligned_copy(flushed(x)) for x in np.concatenate([pairs, random], axis=1))
    y = aligned(a.shape)
    kernels.call(f"{op.stem}_bf16", a, b, y, a.size)
    hold(op, y, a, b, report=record_property)


@every_binary
def test_arithmetic_with_a_row_and_with_a_number(
    kernels: KernelLibrary, rng: np.random.Generator, op: Op
) -> None:
    a, row, y = numbers(rng, 5, 96), numbers(rng, 96), aligned((5, 96))
    number = np.array(-1.375, BFLOAT16)
    kernels.call(f"{op.stem}_row_bf16", a, row, y, 5, 96)
    hold(op, y, a, row)
    kernels.call(f"{op.stem}_number_bf16", a, y, a.size, -1.375)
    hold(op, y, a, number)
    if op.stem in ORDERED:
        kernels.call(f"row_{op.stem}_bf16", a, row, y, 5, 96)
        hold(op, y, row, a)
        kernels.call(f"number_{op.stem}_bf16", a, y, a.size, -1.375)
        hold(op, y, number, a)


# -- functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", variants(1), ids=str)
def test_functions_of_every_bfloat16(
    kernels: KernelLibrary, record_property: Report, op: Op
) -> None:
    x = every_bfloat16()
    y = aligned(x.shape)
    design = made(op, {"x": x}, Target.NPU2)
    assert isinstance(design, Design), design
    (call,) = design.calls
    kernels.call(call.kernel, x, y, x.size)
    (wanted,) = exact(op, x)
    # Below the least normal number's neighbourhood a result may be flushed, or not.
    tiny = np.abs(wanted) < 2.0**-118
    assert (np.abs(y[tiny].astype(np.float32)) < 2.0**-117).all()
    hold(op, y[~tiny], x[~tiny], report=record_property)
