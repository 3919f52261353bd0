"""Sums, means, largest elements and their places, over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onnx_iron.functional.operand import axis_of, handle_of, method, with_last, with_last_back
from onnx_iron.graph.handle import Handle
from onnx_iron.operators.arg_max import ArgMax
from onnx_iron.operators.base import Op
from onnx_iron.operators.cum_sum import CumSum
from onnx_iron.operators.reduce import ReduceMax, ReduceMean, ReduceSum
from onnx_iron.operators.top_k import TopK


class ValuesAndIndices(NamedTuple):
    """Elements, and their places along an axis (int64)."""

    values: Handle
    indices: Handle


def _reduced(function: str, op: type[Op], x: Any, dim: Any, keepdim: bool) -> Handle:
    """One operator over the axes ``dim`` (all where None), as the last axis of a view."""
    x = handle_of(function, "x", x)
    if not x.ndim:
        copied: Handle = x.copy()
        return copied
    given = range(x.ndim) if dim is None else dim if isinstance(dim, Sequence) else [dim]
    axes = [axis_of(function, x, axis) for axis in given]
    if len(set(axes)) != len(axes) or not axes:
        raise ValueError(f"{function}(): dim is {dim}; expected axes of x {x.shape}, each once")
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.permute(*kept, *sorted(axes))
    y = op.step(moved.reshape(*(x.shape[axis] for axis in kept), -1))
    if not keepdim:
        return y
    return y.reshape(*(1 if axis in axes else n for axis, n in enumerate(x.shape)))


@method
def sum(x: Any, dim: Any = None, keepdim: bool = False) -> Handle:
    """The sum over an axis or several, over all where ``dim`` is None: float32, rounded once.

    Args:
        x: float32 or bfloat16.
        dim: an axis, or a sequence of them.
        keepdim: they stay, with one entry.

    Raises:
        IndexError: x has no such axis.
        ValueError: an axis is bounded: its padding would count.

    Example:
        >>> F.sum(x, 0).shape, F.sum(x, (0, 1), keepdim=True).shape
        ((8,), (1, 1))
    """
    return _reduced("sum", ReduceSum, x, dim, keepdim)


@method
def mean(x: Any, dim: Any = None, keepdim: bool = False) -> Handle:
    """The mean over an axis or several; otherwise as ``sum``.

    Example:
        >>> F.mean(x, -1, keepdim=True).shape
        (4, 1)
    """
    return _reduced("mean", ReduceMean, x, dim, keepdim)


@method
def amax(x: Any, dim: Any = None, keepdim: bool = False) -> Handle:
    """The largest element over an axis or several, NaN where one is; otherwise as ``sum``.

    Example:
        >>> F.amax(x, (0, 1)).shape
        ()
    """
    return _reduced("amax", ReduceMax, x, dim, keepdim)


@method
def max(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The largest of all elements; with ``dim``, those along it and their places, as torch's.

    Returns:
        A handle of shape (), or with ``dim`` a pair of them, ``values`` and ``indices`` (int64).

    Raises:
        IndexError: x has no such axis.
        ValueError: the axis is bounded.

    Example:
        >>> F.max(x).shape, F.max(x, 1).indices.shape
        ((), (4,))
    """
    if dim is None:
        return amax(x, keepdim=keepdim)
    return ValuesAndIndices(amax(x, dim, keepdim), argmax(x, dim, keepdim))


@method
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Handle:
    """The place (int64) of the largest element along an axis, of all elements where ``dim`` is
    None: of equals the first, and the first NaN where there is one.

    Raises:
        IndexError: x has no such axis.
        ValueError: the axis is bounded.

    Example:
        >>> F.argmax(x, -1).dtype.name
        'int64'
    """
    return _reduced("argmax", ArgMax, x, dim, keepdim)


@method
def topk(x: Any, k: int, dim: int = -1) -> ValuesAndIndices:
    """The ``k`` largest elements along an axis, the largest first, and their places (int64): of
    equals the first. A NaN ranks with infinity.

    Raises:
        IndexError: x has no such axis.
        ValueError: ``k`` is not in 1..the axis' size, or the axis is bounded.

    Example:
        >>> F.topk(x, 2).values.shape
        (4, 2)
    """
    x = handle_of("topk", "x", x)
    axis = axis_of("topk", x, dim)
    values, indices = TopK.steps(with_last(x, axis), k=k)
    return ValuesAndIndices(with_last_back(values, axis), with_last_back(indices, axis))


@method
def cumsum(x: Any, dim: int) -> Handle:
    """Each element with all before it along an axis.

    Raises:
        IndexError: x has no such axis.

    Example:
        >>> F.cumsum(x, 0).shape
        (4, 8)
    """
    x = handle_of("cumsum", "x", x)
    axis = axis_of("cumsum", x, dim)
    return with_last_back(CumSum.step(with_last(x, axis)), axis)
