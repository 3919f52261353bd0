"""The element types of a graph, as numpy dtypes, with their ONNX numbers."""

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx

Array: TypeAlias = np.ndarray[Any, Any]

FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

FLOATS = (FLOAT32, BFLOAT16)
INDICES = (INT32, INT64)

_ONNX = {
    FLOAT32: onnx.TensorProto.FLOAT,
    BFLOAT16: onnx.TensorProto.BFLOAT16,
    INT32: onnx.TensorProto.INT32,
    INT64: onnx.TensorProto.INT64,
}


def as_dtype(value: Any) -> "np.dtype[Any]":
    """The graph's dtype for a numpy dtype, a scalar type or a name such as ``"bfloat16"``.

    Raises:
        TypeError: ``value`` names none of float32, bfloat16, int32 and int64.
    """
    dtype: np.dtype[Any] | None
    try:
        dtype = BFLOAT16 if value == "bfloat16" else np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in _ONNX:
        given = value if dtype is None else dtype.name
        raise TypeError(
            f"dtype {given} is none of {', '.join(d.name for d in _ONNX)}; convert it with astype()"
        )
    return dtype


def onnx_type(dtype: "np.dtype[Any]") -> int:
    """The ``TensorProto.DataType`` of a graph's dtype."""
    return int(_ONNX[dtype])
