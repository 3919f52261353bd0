"""Types of tensors as the planner knows them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
DType: TypeAlias = "np.dtype[Any]"
Shape: TypeAlias = tuple[int, ...]

FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)

FLOATS = (FLOAT32, BFLOAT16)

# TensorProto.DataType of the dtypes that kernels know.
NUMBERS: dict[DType, int] = {FLOAT32: 1, INT32: 6, INT64: 7, BOOL: 9, BFLOAT16: 16}
DTYPES: dict[int, DType] = {number: dtype for dtype, number in NUMBERS.items()}


class Spec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: Shape
    dtype: DType

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.shape}"
