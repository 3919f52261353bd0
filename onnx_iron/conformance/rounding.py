"""Float64 numbers rounded once to a dtype, and distances in units of the last place."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array, DType

_BITS = {FLOAT32: np.dtype(np.int32), BFLOAT16: np.dtype(np.int16)}


def rounded(wide: Array, dtype: DType) -> Array:
    """``wide`` in ``dtype``, float64 rounded to the nearest even, once.

    A cast from float64 to bfloat16 goes by way of float32 and rounds twice. Here float32 is rounded
    to odd, which keeps what the second rounding needs (Boldo and Melquiond, 2008).
    """
    if wide.dtype != np.float64 or dtype != BFLOAT16:
        with np.errstate(over="ignore"):
            return np.asarray(wide.astype(dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.asarray(wide.astype(np.float32))
        away = np.isfinite(wide) & (np.abs(near.astype(np.float64)) > np.abs(wide))
        truncated = np.where(away, np.nextafter(near, np.float32(0)), near)
        inexact = np.isfinite(wide) & (truncated.astype(np.float64) != wide)
    bits = np.ascontiguousarray(truncated).view(np.int32) | inexact.astype(np.int32)
    return np.asarray(bits.view(np.float32).astype(BFLOAT16)).reshape(wide.shape)


def ulps(result: Array, expected: Array) -> Array:
    """How many numbers of their dtype lie between two arrays, element by element.

    Zeros of both signs are one number, and so are all NaNs; a NaN is farther from any number than
    two numbers can be. Integers and booleans are 0 or 1 apart: equal or not.
    """
    if expected.dtype not in _BITS:
        return (result != expected).astype(np.int64)
    distance = np.abs(_places(result) - _places(expected))
    nan, other = _is_nan(result), _is_nan(expected)
    far = np.int64(1) << (8 * expected.dtype.itemsize)
    return np.where(nan & other, 0, np.where(nan | other, far, distance))


def _is_nan(array: Array) -> Array:
    return np.isnan(array.astype(np.float32))


def _places(array: Array) -> Array:
    """Each number's place among all of its dtype, counted from zero."""
    kind = _BITS[array.dtype]
    bits = np.ascontiguousarray(array).view(kind).astype(np.int64).reshape(array.shape)
    return np.where(bits >= 0, bits, np.int64(np.iinfo(kind).min) - bits)
