"""Integers that are known before anything runs, of which shapes are made, and what is computed of
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_iron.dtypes import DType
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.symbols import Symbol

# More of them are no shape.
_MOST = 64


def fold(op: Operation, contents: Any, dtype: DType) -> None:
    """The output is integers that are known, some of which may be symbols."""
    array = np.array(contents, object)
    if array.size == 0 or not any(isinstance(each, Symbol) for each in array.reshape(-1)):
        array = array.astype(dtype)
    op.view(op.literal(array, dtype), array.shape)


def fold_by(op: Operation, function: Callable[..., Any] | None, dtype: DType) -> bool:
    """Where all inputs are known, and are few, the output is a function of them, by elements with
    numpy's broadcasting. False where they are not."""
    known = [op.known(index) for index in range(op.input_count)]
    arrays = [array.astype(object) for array in known if array is not None]
    if function is None or len(arrays) < len(known):
        return False
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return False
    if len(shape) > 1 or not 0 < np.prod(shape) <= _MOST:
        return False
    wide = [np.broadcast_to(array, shape).reshape(-1).tolist() for array in arrays]
    try:
        made = [function(*numbers) for numbers in zip(*wide, strict=True)]
    except ZeroDivisionError:
        return False  # which is the kernel's to tell
    contents = np.empty(len(made), object)
    contents[:] = made
    fold(op, contents.reshape(shape), dtype)
    return True
