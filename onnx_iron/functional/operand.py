"""What functions ask of their operands, and how a function becomes a method of handles."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle, Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])


def method(function: _Function) -> _Function:
    """The function is a method of handles, states and weights too, which are its first operand."""
    setattr(Tensor, function.__name__, function)
    return function


def tensor_of(function: str, name: str, value: Any) -> Any:
    """An operand that has a shape and a dtype: a handle, a state, a weight or an array.

    Raises:
        TypeError: something else.
    """
    if isinstance(value, Tensor | np.ndarray):
        return value
    if as_array(value) is None:
        raise TypeError(
            f"{function}(): {name} is {value!r}, which is no operand; use a handle, a state, a "
            "weight or an array"
        )
    return current_trace(f"{function}()").lift(value)


def handle_of(function: str, name: str, value: Any) -> Handle:
    """As ``tensor_of``, as a handle.

    Raises:
        TypeError: something else.
    """
    handle: Handle = current_trace(f"{function}()").lift(tensor_of(function, name, value))
    return handle


def axis_of(function: str, x: Tensor, dim: Any) -> int:
    """An axis of ``x`` counted from the front.

    Raises:
        TypeError: it is no integer.
        IndexError: x has no such axis.
    """
    axis = operator.index(dim)
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(
            f"{function}(): dim is {axis}; x is {x.shape}, expected {-x.ndim}..{x.ndim - 1}"
        )
    return axis % x.ndim


def with_last(x: Handle, axis: int) -> Handle:
    """``x`` with an axis moved behind the others, which ``with_last_back`` undoes."""
    return x.permute(*(a for a in range(x.ndim) if a != axis), axis)


def with_last_back(x: Handle, axis: int) -> Handle:
    """``x`` with its last axis moved to ``axis``."""
    order = list(range(x.ndim - 1))
    order.insert(axis, x.ndim - 1)
    return x.permute(*order)


def last_axis(function: str, x: Any, normalized_shape: Any) -> Any:
    """``x`` as an operand whose last axis is ``normalized_shape``.

    Raises:
        ValueError: it is another.
    """
    x = tensor_of(function, "x", x)
    sizes = (
        (int(normalized_shape),)
        if hasattr(normalized_shape, "__index__")
        else tuple(normalized_shape)
    )
    if sizes != tuple(x.shape[-1:]):
        raise ValueError(
            f"{function}(): normalized_shape is {sizes}; x is {tuple(x.shape)}, and only its last "
            f"axis {tuple(x.shape[-1:])} is normalized"
        )
    return x
