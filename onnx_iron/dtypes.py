"""The dtypes that graphs and kernels know, and what a tensor is: a shape and a dtype."""

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
UINT8 = np.dtype(np.uint8)  # codes of quantized weights, in models of others

FLOATS = (FLOAT32, BFLOAT16)
INDICES = (INT32, INT64)

# TensorProto.DataType of the dtypes that kernels know.
NUMBERS: dict[DType, int] = {FLOAT32: 1, UINT8: 2, INT32: 6, INT64: 7, BOOL: 9, BFLOAT16: 16}
DTYPES: dict[int, DType] = {number: dtype for dtype, number in NUMBERS.items()}

# What a graph's tensors may be; integers and bools are moved and index, and nothing else.
_GRAPH = (FLOAT32, BFLOAT16, INT32, INT64, BOOL)


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


def as_dtype(value: Any) -> DType:
    """The graph's dtype for a numpy dtype, a scalar type or a name such as ``"bfloat16"``.

    Raises:
        TypeError: ``value`` names none of float32, bfloat16, int32, int64 and bool.
    """
    dtype: DType | None
    try:
        dtype = BFLOAT16 if value == "bfloat16" else np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in _GRAPH:
        known = ", ".join(known.name for known in _GRAPH)
        given = value if dtype is None else dtype.name
        raise TypeError(f"dtype {given} is none of {known}; convert it with astype()")
    return dtype


def onnx_type(dtype: DType) -> int:
    """The ``TensorProto.DataType`` of a graph's dtype."""
    return NUMBERS[dtype]
