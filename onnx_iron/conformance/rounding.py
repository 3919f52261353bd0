"""Float64 numbers rounded once to a dtype, and how far results are from them."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array, DType

# Bits of the fraction; both have the exponents of float32.
_FRACTION = {FLOAT32: 23, BFLOAT16: 7}
_LEAST_EXPONENT, _BEYOND = -126, 2.0**128


def rounded(wide: Array, dtype: DType) -> Array:
    """``wide`` in ``dtype``, float64 rounded to the nearest even, once.

    A cast from float64 to bfloat16 goes by way of float32 and rounds twice. Here float32 is rounded
    to odd, which keeps what the second rounding needs (Boldo and Melquiond, 2008).
    """
    if wide.dtype != np.float64 or dtype != BFLOAT16:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(wide.astype(dtype))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = np.asarray(wide.astype(np.float32))
        away = np.isfinite(wide) & (np.abs(near.astype(np.float64)) > np.abs(wide))
        truncated = np.where(away, np.nextafter(near, np.float32(0)), near)
        inexact = np.isfinite(wide) & (truncated.astype(np.float64) != wide)
    bits = np.ascontiguousarray(truncated).view(np.int32) | inexact.astype(np.int32)
    return np.asarray(bits.view(np.float32).astype(BFLOAT16)).reshape(wide.shape)


def spacing(array: Array) -> Array:
    """The distance from each number to the next larger one of its dtype; an ulp, as float64.

    That of an infinity or a NaN is the largest number's, that of anything but a float 1.
    """
    if array.dtype not in _FRACTION:
        return np.ones(array.shape)
    wide = _on_a_line(array)
    exponent = np.clip(np.frexp(wide)[1] - 1, _LEAST_EXPONENT, 127)
    exponent = np.where(wide == 0, _LEAST_EXPONENT, exponent)  # of 0 frexp says 0
    return np.asarray(np.ldexp(1.0, exponent - _FRACTION[array.dtype]))


def distance(result: Array, expected: Array) -> Array:
    """``|result - expected|`` in float64, element by element.

    An infinity is the number that would follow the largest. NaNs are equal; a NaN is infinitely far
    from a number. Zeros of both signs are equal.
    """
    nan, other = np.isnan(_wide(result)), np.isnan(_wide(expected))
    apart = np.abs(_on_a_line(result) - _on_a_line(expected))
    return np.where(nan & other, 0.0, np.where(nan | other, np.inf, apart))


def _wide(array: Array) -> Array:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.asarray(array.astype(np.float64))


def _on_a_line(array: Array) -> Array:
    return np.nan_to_num(_wide(array), nan=_BEYOND, posinf=_BEYOND, neginf=-_BEYOND)
