"""How far two results are apart."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array

_BITS = {FLOAT32: np.int32, BFLOAT16: np.int16}


def ulps(result: Array, expected: Array) -> Array:
    """How many representable numbers lie between two results, element by element.

    Zeros of both signs are one number, and so are all NaNs.
    """
    _check_form(result, expected)
    both_nan = np.isnan(result.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return np.where(both_nan, 0, np.abs(_places(result) - _places(expected)))


def _places(array: Array) -> Array:
    """Each number's place among all of its dtype, counted from zero."""
    kind = _BITS[array.dtype]
    bits = np.ascontiguousarray(array).reshape(array.shape).view(kind).astype(np.int64)
    return np.where(bits >= 0, bits, np.int64(np.iinfo(kind).min) - bits)


def _check_form(result: Array, expected: Array) -> None:
    assert result.dtype == expected.dtype, f"{result.dtype} against {expected.dtype}"
    assert result.shape == expected.shape, f"{result.shape} against {expected.shape}"


def assert_same_bits(result: Array, expected: Array) -> None:
    """The results are of one dtype and shape, and of the same bits."""
    _check_form(result, expected)
    bits = [np.ascontiguousarray(x).tobytes() for x in (result, expected)]
    assert bits[0] == bits[1], f"not the same bits:\n{result}\n{expected}"


def assert_close(
    result: Array, expected: Array, *, ulp: int, of_largest: float = 0.0, reason: str
) -> None:
    """Each element is at most ``ulp`` representable numbers away from the one expected, or
    ``of_largest`` of the largest one expected: terms that cancel leave the error of the terms.

    Args:
        reason: where the tolerance comes from; shown where it does not hold.
    """
    apart = ulps(result, expected)
    wide, wanted = result.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(wanted[np.isfinite(wanted)])
    with np.errstate(invalid="ignore"):
        near = np.abs(wide - wanted) <= of_largest * finite.max(initial=0)
    wrong = (apart > ulp) & ~near
    assert not wrong.any(), (
        f"{wrong.sum()} of {wrong.size} elements are wrong, up to {apart[wrong].max()} ulp of "
        f"{ulp} ({reason}):\n{result[wrong][:8]}\n{expected[wrong][:8]}"
    )
