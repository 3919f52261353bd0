"""How far two results are apart, counted in units of the last place."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array

_BITS = {FLOAT32: np.int32, BFLOAT16: np.int16}


def ulps(result: Array, expected: Array) -> int:
    """The most representable numbers that lie between two results, element by element.

    Zeros of both signs are one number, and so are all NaNs.
    """
    assert result.dtype == expected.dtype, f"{result.dtype} against {expected.dtype}"
    assert result.shape == expected.shape, f"{result.shape} against {expected.shape}"
    if not result.size:
        return 0
    places = _places(result) - _places(expected)
    both_nan = np.isnan(result.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return int(np.abs(np.where(both_nan, 0, places)).max())


def _places(array: Array) -> Array:
    """Each number's place among all of its dtype, counted from zero."""
    kind = _BITS[array.dtype]
    bits = np.ascontiguousarray(array).reshape(array.shape).view(kind).astype(np.int64)
    return np.where(bits >= 0, bits, np.int64(np.iinfo(kind).min) - bits)


def assert_same_bits(result: Array, expected: Array) -> None:
    """The results are of one dtype and shape, and have the same elements down to the last bit."""
    assert result.dtype == expected.dtype, f"{result.dtype} against {expected.dtype}"
    assert result.shape == expected.shape, f"{result.shape} against {expected.shape}"
    different = np.ascontiguousarray(result).view(np.uint8) != np.ascontiguousarray(expected).view(
        np.uint8
    )
    assert not different.any(), f"{ulps(result, expected)} ulp apart:\n{result}\n{expected}"


def assert_within_ulps(result: Array, expected: Array, limit: int) -> None:
    """No element is further than ``limit`` representable numbers away from what is expected."""
    apart = ulps(result, expected)
    assert apart <= limit, f"{apart} ulp apart, {limit} allowed:\n{result}\n{expected}"


def assert_close(result: Array, expected: Array, *, relative: float, reason: str) -> None:
    """Every element is within ``relative`` of the largest one that is expected.

    Sums of terms that cancel have no small error relative to themselves; ``reason`` says where the
    bound comes from and is shown when it does not hold.
    """
    assert result.dtype == expected.dtype, f"{result.dtype} against {expected.dtype}"
    assert result.shape == expected.shape, f"{result.shape} against {expected.shape}"
    wide, wanted = result.astype(np.float64), expected.astype(np.float64)
    allowed = relative * max(float(np.abs(wanted).max(initial=0)), np.finfo(np.float32).tiny)
    apart = float(np.abs(wide - wanted).max(initial=0))
    assert apart <= allowed, f"{apart} apart, {allowed} allowed ({reason}):\n{result}\n{expected}"
