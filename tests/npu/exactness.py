"""How far results of the NPU's kernels and designs are from the operators' float64 oracles.

A distance is in units of the last place of bfloat16, subnormal numbers counted as zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_iron.conformance.rounding import rounded
from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.designs.makers import maker_of
from onnx_iron.operators import OPERATORS, Op
from onnx_iron.operators.base import Tolerance

Report = Callable[[str, object], None]

# Where the cores do worse than the operator's own tolerance has it.
CORES = {
    "Div": Tolerance(0, 1, "a float32 product with a reciprocal, each inexact"),
    "Attention": Tolerance(
        0,
        1,
        "exp and the sums are made of bfloat16 limbs' products, and scaled anew at each tile",
        of_magnitude=2**-18,
    ),
}


def variants(inputs: int) -> list[Op]:
    """The elementwise operators that the cores compute, of so many inputs, in each of their cases'
    forms.
    """
    found = {
        op(**case.attributes)
        for op in OPERATORS.values()
        if op.elementwise and not op.moves and len(op.inputs) == inputs and maker_of(op)
        for case in op.cases
    }
    return sorted(found, key=str)


def flushed(x: Array) -> Array:
    """Subnormal numbers as zero of their sign, as the cores take and give them."""
    bits = x.view(np.uint16)
    return np.where((bits & 0x7F80) == 0, bits & 0x8000, bits).astype(np.uint16).view(BFLOAT16)


def distances(y: Array, expected: Array) -> Array:
    """How many bfloat16 numbers lie between; NaN is at NaN's place."""

    def places(x: Array) -> Array:
        bits = flushed(x).view(np.uint16).astype(np.int64)
        magnitude = np.minimum(bits & 0x7FFF, 0x7F81)
        return np.where(bits & 0x8000, -magnitude, magnitude)

    apart = np.abs(places(y) - places(expected))
    both_nan = np.isnan(y.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return np.asarray(np.where(both_nan, 0, apart))


def not_flushed(y: Array, wanted: Array, least: float = 2.0**-126) -> Array:
    """Where results are above ``least``. The others may be zero, or not, but are as small."""
    tiny = np.abs(wanted) <= least
    assert (np.abs(y[tiny].astype(np.float32)) < 2 * least).all()
    return ~tiny


def tuple_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def exact(op: Op, *operands: Any) -> tuple[Array, ...]:
    """What the oracle gives, in float64; subnormal operands count as zero."""
    with np.errstate(all="ignore"):
        return tuple(np.asarray(y) for y in tuple_of(op.oracle(*map(_wide, operands))))


def hold(op: Op, results: Any, *operands: Any, report: Report | None = None) -> None:
    """Hold results to the oracle, within the operator's own tolerance.

    Args:
        results: an array, or a tuple of them.
        report: takes the worst distance, as the property ``worst_ulp``.
    """
    tolerance = CORES.get(op.name, op.tolerance)
    with np.errstate(all="ignore"):
        magnitudes = tuple_of(op.magnitude(*map(_wide, operands)))
        worst = 0
        for y, wanted, magnitude in zip(
            tuple_of(results), exact(op, *operands), magnitudes, strict=True
        ):
            assert y.shape == wanted.shape, f"{op}: {y.shape}, expected {wanted.shape}"
            apart = distances(y, rounded(wanted, BFLOAT16))
            off = np.abs(y.astype(np.float64) - wanted)
            near = off <= tolerance.of_magnitude * np.broadcast_to(magnitude, off.shape)
            worst = max(worst, int(apart.max(initial=0)))
            wrong = (apart > tolerance.bfloat16) & ~near
            assert not wrong.any(), (
                f"{op}: {wrong.sum()} of {wrong.size} elements are up to {apart[wrong].max()} ulp "
                f"off, of {tolerance.bfloat16} ({tolerance.reason}):\n{y[wrong][:8]}\n"
                f"{wanted[wrong][:8]}"
            )
    if report:
        report("worst_ulp", worst)


def _wide(operand: Any) -> Any:
    if isinstance(operand, np.ndarray) and operand.dtype == BFLOAT16:
        return flushed(operand).astype(np.float64)
    return operand
