"""The elementwise AIE kernels, compiled for the host, against the operators' oracles."""

from __future__ import annotations

import numpy as np
import pytest
from aie_arrays import every_bfloat16, numbers
from design_cases import made
from exactness import Report, exact, flushed, hold, not_flushed, variants

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.kernels.aie.library import KernelLibrary, aligned, aligned_copy
from onnx_iron.kernels.designs import Design, Target
from onnx_iron.operators import Op
from onnx_iron.operators.arithmetic import Div

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


@pytest.mark.parametrize("numerator", [1.0, -3.0, 1.9921875, 2.0**-126, 3.38e38, 0, np.inf, np.nan])
def test_division_by_every_bfloat16(
    kernels: KernelLibrary, record_property: Report, numerator: float
) -> None:
    b = aligned_copy(flushed(every_bfloat16()))
    y, number = aligned(b.shape), np.array(numerator, BFLOAT16)
    kernels.call("number_div_bf16", b, y, b.size, float(number))
    large = not_flushed(y, exact(Div(), number, b)[0])
    hold(Div(), y[large], number, b[large], report=record_property)


@pytest.mark.parametrize("divisor", [1.0, -3.0, 1.9921875, 2.0**-126, 2.0**126, 3.38e38, 0, np.inf])
def test_division_of_every_bfloat16(
    kernels: KernelLibrary, record_property: Report, divisor: float
) -> None:
    a = aligned_copy(flushed(every_bfloat16()))
    y, number = aligned(a.shape), np.array(divisor, BFLOAT16)
    kernels.call("div_number_bf16", a, y, a.size, float(number))
    large = not_flushed(y, exact(Div(), a, number)[0])
    hold(Div(), y[large], a[large], number, report=record_property)


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
    large = not_flushed(y, exact(op, x)[0], 2.0**-118)
    hold(op, y[large], x[large], report=record_property)
