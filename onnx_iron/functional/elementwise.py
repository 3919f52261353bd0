"""Functions of numbers, element by element, choices between them, and dtypes."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import numpy as np

from onnx_iron.dtypes import BFLOAT16, BOOL, FLOAT32, INDICES, INT32, INT64, as_dtype, onnx_type
from onnx_iron.functional.operand import handle_of, method, tensor_of
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle, Tensor
from onnx_iron.graph.value import Value
from onnx_iron.operators.arithmetic import Add
from onnx_iron.operators.cast import Cast
from onnx_iron.operators.exp import Exp
from onnx_iron.operators.extrema import Max, Min
from onnx_iron.operators.log import Log
from onnx_iron.operators.pow import Pow
from onnx_iron.operators.rsqrt import Rsqrt
from onnx_iron.operators.sqrt import Sqrt
from onnx_iron.operators.where import Where


@method
def exp(x: Any) -> Handle:
    """``e ** x``.

    Example:
        >>> F.exp(x).shape
        (4, 8)
    """
    return Exp.step(tensor_of("exp", "x", x))


@method
def log(x: Any) -> Handle:
    """The natural logarithm; -inf of 0, NaN below.

    Example:
        >>> F.log(x).shape
        (4, 8)
    """
    return Log.step(tensor_of("log", "x", x))


@method
def sqrt(x: Any) -> Handle:
    """The square root; NaN below 0.

    Example:
        >>> F.sqrt(x).shape
        (4, 8)
    """
    return Sqrt.step(tensor_of("sqrt", "x", x))


@method
def rsqrt(x: Any) -> Handle:
    """One over the square root, rounded once.

    Example:
        >>> F.rsqrt(x).shape
        (4, 8)
    """
    return Rsqrt.step(tensor_of("rsqrt", "x", x))


@method
def abs(x: Any) -> Handle:
    """``|x|``, of floats and integers.

    Example:
        >>> F.abs(x).shape
        (4, 8)
    """
    result: Handle = handle_of("abs", "x", x).__abs__()
    return result


@method
def neg(x: Any) -> Handle:
    """``-x``, of floats and integers.

    Example:
        >>> F.neg(x).shape
        (4, 8)
    """
    result: Handle = -handle_of("neg", "x", x)
    return result


@method
def pow(x: Any, exponent: Any) -> Handle:
    """``x ** exponent``; either may be a number.

    Example:
        >>> F.pow(x, 0.5).shape
        (4, 8)
    """
    return Pow.step(x, exponent)


@method
def maximum(x: Any, other: Any) -> Any:
    """The larger of two, elementwise with broadcasting, NaN where either is; of per-call values the
    larger one, itself a per-call value.

    Example:
        >>> F.maximum(x, 0.5).shape, F.maximum(n, 2)
        ((4, 8), Value(max(n, 2)))
    """
    if isinstance(x, Value) and not isinstance(other, Tensor):
        return x.maximum(other)
    if isinstance(other, Value) and not isinstance(x, Tensor):
        return other.maximum(x)
    return Max.step(x, other)


@method
def minimum(x: Any, other: Any) -> Any:
    """The smaller of two; otherwise as ``maximum``.

    Example:
        >>> F.minimum(x, b).shape, F.minimum(n + 1, 2)
        ((4, 8), Value(min(n + 1, 2)))
    """
    if isinstance(x, Value) and not isinstance(other, Tensor):
        return x.minimum(other)
    if isinstance(other, Value) and not isinstance(x, Tensor):
        return other.minimum(x)
    return Min.step(x, other)


@method
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """``minimum(maximum(x, min), max)``, either left out; of a per-call value too.

    Raises:
        ValueError: neither is given.

    Example:
        >>> F.clamp(x, -1, 1).shape
        (4, 8)
    """
    if min is None and max is None:
        raise ValueError("clamp(): neither min nor max is given")
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


def where(condition: Any, x: Any, other: Any) -> Handle:
    """``x`` where ``condition`` (bool) holds, ``other`` elsewhere, with broadcasting. Either may be
    a number, which takes the other's dtype; two numbers are float32.

    Raises:
        TypeError: a condition that is no bool, or x and other of two dtypes.

    Example:
        >>> F.where(x > 0, x, 0.0).shape
        (4, 8)
    """
    if not any(isinstance(v, Tensor | np.ndarray) or hasattr(v, "shape") for v in (x, other)):
        x = current_trace("where()").lift(x, like=FLOAT32)
    return Where.step(condition, x, other)


@method
def masked_fill(x: Any, mask: Any, value: Any) -> Handle:
    """``value`` where ``mask`` (bool) holds, x elsewhere.

    Example:
        >>> F.masked_fill(x, x > 0, float("-inf")).shape
        (4, 8)
    """
    return where(mask, value, handle_of("masked_fill", "x", x))


@method
def to(x: Any, dtype: Any) -> Handle:
    """``x`` in another dtype: float32, bfloat16, int32, int64 or bool, numpy's or torch's or by
    name. Floats are rounded to the nearest even, to integers towards 0.

    Raises:
        TypeError: another dtype.

    Example:
        >>> F.to(x, "bfloat16").dtype.name
        'bfloat16'
    """
    handle = handle_of("to", "x", x)
    text = str(dtype)
    wanted = as_dtype(text.removeprefix("torch.") if text.startswith("torch.") else dtype)
    if handle.dtype == wanted:
        return handle
    return Cast.step(handle, to=onnx_type(wanted))


for _name, _dtype in {
    "float": FLOAT32,
    "bfloat16": BFLOAT16,
    "int": INT32,
    "long": INT64,
    "bool": BOOL,
}.items():
    setattr(Tensor, _name, partialmethod(to, _dtype))
Tensor.astype = to  # type: ignore[attr-defined]


def tensor(value: Value | int) -> Handle:
    """A per-call value as an int32 tensor of shape (), to compute with.

    Example:
        >>> (F.tensor(n + 1).to("float32") * 0.5).shape
        ()
    """
    return Add.step(value, np.zeros((), np.int32))


@method
def one_hot(ids: Any, num_classes: int) -> Handle:
    """For each of ``ids`` (int32 or int64, any shape) a row of ``num_classes`` int64 numbers, 1 at
    its place and 0 elsewhere; all 0 for a number outside.

    Raises:
        TypeError: ids that are no integers.
        ValueError: ``num_classes`` below 1.

    Example:
        >>> F.one_hot(F.argmax(x, -1), 8).shape
        (4, 8)
    """
    ids = handle_of("one_hot", "ids", ids)
    if ids.dtype not in INDICES:
        raise TypeError(f"one_hot(): ids are {ids.dtype.name}; expected int32 or int64")
    if num_classes < 1:
        raise ValueError(f"one_hot(): num_classes is {num_classes}; it must be at least 1")
    return to(ids.unsqueeze(-1) == np.arange(num_classes, dtype=ids.dtype), INT64)
