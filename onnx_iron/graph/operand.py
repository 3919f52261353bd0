"""What a step reads, and numbers as operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from onnx_iron.dtypes import BOOL, FLOATS, Array
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.handle import Handle, Tensor
from onnx_iron.graph.value import Value

# A tensor, an integer known now or at each call, or an omitted operand.
Operand: TypeAlias = Handle | Value | int | None


def as_number(operand: Any, dtype: np.dtype[Any]) -> Array | None:
    """A number (Python's, numpy's, or an array or torch tensor of no dimension) in ``dtype``, a
    float by way of float32; None for anything else, and for a fraction where ``dtype`` has none.

    Raises:
        ValueError: an integer out of ``dtype``'s range.
    """
    if isinstance(operand, bool) and dtype != BOOL:
        return None
    plain = isinstance(operand, int | float | np.generic)
    number = np.asarray(operand) if plain else as_array(operand)
    if number is None:
        return None
    if number.ndim or number.dtype.kind in "bOSUcMm":
        return number if not number.ndim and number.dtype == dtype == BOOL else None
    if dtype in FLOATS:
        return number.astype(np.float32).astype(dtype)
    if number.dtype.kind not in "iu" or dtype == BOOL:
        return None
    if not np.iinfo(dtype).min <= int(number) <= np.iinfo(dtype).max:
        raise ValueError(f"{number} is no {dtype.name}; it is out of that dtype's range")
    return number.astype(dtype)


def number_dtype(operands: Sequence[Any]) -> np.dtype[Any] | None:
    """The dtype that numbers take beside these operands: the first float one, else the first."""
    found = None
    for operand in operands:
        tensor = operand if isinstance(operand, Tensor) else as_array(operand)
        counts = isinstance(tensor, Tensor) or (tensor is not None and tensor.ndim)
        if tensor is not None and counts:
            if tensor.dtype in FLOATS:
                return tensor.dtype
            found = found or tensor.dtype
    return found
