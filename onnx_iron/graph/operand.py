"""What a step reads, and numbers as operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from onnx_iron.dtypes import FLOATS, Array
from onnx_iron.graph.handle import Handle, Tensor
from onnx_iron.graph.value import Value

# A tensor, an integer known now or at each call, or an omitted operand.
Operand: TypeAlias = Handle | Value | int | None


def as_number(operand: Any, dtype: np.dtype[Any]) -> Array | None:
    """A number (Python's, numpy's or an array of no dimension) in ``dtype``, a float by way of
    float32; None for anything else, and for a fraction where ``dtype`` has none.
    """
    if isinstance(operand, bool) or not isinstance(operand, int | float | np.generic | np.ndarray):
        return None
    number = np.asarray(operand)
    if number.ndim or number.dtype.kind in "bOSUcMm":
        return None
    if dtype in FLOATS:
        return number.astype(np.float32).astype(dtype)
    return number.astype(dtype) if number.dtype.kind in "iu" else None


def float_dtype(operands: Sequence[Any]) -> np.dtype[Any] | None:
    """The float dtype of the first operand that has one."""
    for operand in operands:
        dtype: np.dtype[Any] | None = getattr(operand, "dtype", None)
        counts = isinstance(operand, Tensor) or (isinstance(operand, np.ndarray) and operand.ndim)
        if counts and dtype in FLOATS:
            return dtype
    return None
