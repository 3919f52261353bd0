"""Tensors of other libraries as numpy arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.graph.refusals import Unknown

# torch's float16 widens without loss; what else weights don't have is the caller's to convert.
_TORCH_DTYPES = ("float32", "bfloat16", "float16", "int32", "int64")


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Whether :func:`as_array` has an array for it."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, type | np.generic | Unknown):
        return False
    return is_torch(value) or hasattr(type(value), "__array__")


def as_array(value: Any) -> Array | None:
    """An array, a torch tensor or anything else with ``__array__`` as an array; None for the rest.

    A torch tensor shares its memory where it can: it is detached, fetched from its device, and may
    be strided. bfloat16 keeps its bits, float16 becomes float32, which is exact.

    Raises:
        TypeError: a tensor of another dtype, or one whose elements can't be read.
    """
    if isinstance(value, np.ndarray):
        return value
    if not is_array(value):
        return None
    return _torch_array(value) if is_torch(value) else np.asarray(value)


def _torch_array(tensor: Any) -> Array:
    torch = sys.modules["torch"]
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _TORCH_DTYPES:
        raise TypeError(
            f"a torch tensor of {dtype} is no weight; convert it to one of "
            f"{', '.join(_TORCH_DTYPES)} first, with .to(torch.float32) say"
        )
    try:
        held = tensor.detach().cpu()
        if dtype == "bfloat16":
            array: Array = held.contiguous().view(torch.int16).numpy().view(BFLOAT16)
        else:
            array = held.resolve_conj().resolve_neg().numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise TypeError(
            f"the elements of a torch tensor {tuple(tensor.shape)} on {tensor.device} "
            f"({tensor.layout}) can't be read: {error}"
        ) from error
    return array.astype(np.float32) if dtype == "float16" else array
