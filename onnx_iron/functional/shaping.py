"""Tensors put together and taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_iron.functional.operand import axis_of, handle_of, method
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import as_number
from onnx_iron.operators.concat import Concat


def cat(tensors: Sequence[Any], dim: int = 0) -> Handle:
    """Tensors of one dtype one after another along an axis; their other axes are the same.

    Raises:
        IndexError: they have no such axis.
        ValueError: none is given, other axes differ, or one is bounded along the axis.

    Example:
        >>> F.cat([x, x[:, :2]], dim=1).shape
        (4, 10)
    """
    if not tensors:
        raise ValueError("cat(): no tensor is given")
    handles = [handle_of("cat", f"tensors[{i}]", x) for i, x in enumerate(tensors)]
    axis = axis_of("cat", handles[0], dim)
    return Concat.step(*handles, axis=axis)


def stack(tensors: Sequence[Any], dim: int = 0) -> Handle:
    """Tensors of one shape and dtype as the entries of a new axis.

    Raises:
        IndexError: they have no place for it.
        ValueError: none is given, or their shapes differ.

    Example:
        >>> F.stack([x, x], dim=1).shape
        (4, 2, 8)
    """
    handles = [handle_of("stack", f"tensors[{i}]", x) for i, x in enumerate(tensors)]
    if len({handle.shape for handle in handles}) != 1:
        shapes = [handle.shape for handle in handles]
        raise ValueError(f"stack(): the shapes are {shapes}; they must be one, and there at all")
    place = dim + handles[0].ndim + 1 if dim < 0 else dim
    return cat([handle.unsqueeze(place) for handle in handles], place)


@method
def split(x: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Handle, ...]:
    """``x`` in parts along an axis: of so many entries each, the last of what is left, or of as
    many as a sequence says.

    Raises:
        IndexError: x has no such axis.
        ValueError: sizes that are not all of the axis.

    Example:
        >>> [part.shape for part in F.split(x, [2, 6], dim=1)]
        [(4, 2), (4, 6)]
    """
    x = handle_of("split", "x", x)
    axis = axis_of("split", x, dim)
    size, given = x.shape[axis], split_size_or_sections
    if hasattr(given, "__index__"):
        step = int(given)
        sizes = [min(step, size - at) for at in range(0, size, step)] if step > 0 else []
    else:
        sizes = [int(n) for n in given]
    if sum(sizes) != size or any(n < 1 for n in sizes):
        raise ValueError(
            f"split(): {given!r} does not split axis {axis} of x {x.shape} into parts with entries"
        )
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    before = (slice(None),) * axis
    return tuple(
        x[(*before, slice(start, start + n))] for start, n in zip(starts, sizes, strict=True)
    )


@method
def chunk(x: Any, chunks: int, dim: int = 0) -> tuple[Handle, ...]:
    """``x`` in so many parts along an axis, the last one smaller where it must be.

    Raises:
        IndexError: x has no such axis.
        ValueError: ``chunks`` below 1.

    Example:
        >>> gate, up = F.chunk(x, 2, dim=-1)
        >>> gate.shape
        (4, 4)
    """
    x = handle_of("chunk", "x", x)
    if chunks < 1:
        raise ValueError(f"chunk(): chunks is {chunks}; it must be at least 1")
    return split(x, -(-x.shape[axis_of("chunk", x, dim)] // chunks), dim)


@method
def pad(x: Any, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Handle:
    """``x`` with entries of one number before and after; less than 0 takes entries away.

    Args:
        x: of any dtype.
        pad: (before, after) of the last axis, then of the one before it, and so on.
        mode: "constant".
        value: the number.

    Raises:
        ValueError: another mode, an odd number of sizes, more than axes, or nothing left.

    Example:
        >>> F.pad(x, (1, 2)).shape, F.pad(x, (0, 0, 3, 0)).shape
        ((4, 11), (7, 8))
    """
    x = handle_of("pad", "x", x)
    if mode != "constant":
        raise ValueError(f"pad(): mode is {mode!r}; expected 'constant'")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ValueError(
            f"pad(): {tuple(pad)} for x {x.shape}; expected pairs, one an axis at most"
        )
    number = as_number(value, x.dtype)
    if number is None:
        raise TypeError(f"pad(): value is {value!r}, which is no {x.dtype.name}")
    for place in range(len(pad) // 2):
        axis = x.ndim - 1 - place
        sizes = pad[2 * place : 2 * place + 2]
        kept = slice(max(-sizes[0], 0), x.shape[axis] - max(-sizes[1], 0))
        if (kept.start, kept.stop) != (0, x.shape[axis]):
            x = x[((slice(None),) * axis) + (kept,)]
        filled = [
            np.broadcast_to(number, (*x.shape[:axis], n, *x.shape[axis + 1 :])) if n > 0 else None
            for n in sizes
        ]
        if any(part is not None for part in filled):
            trace = current_trace("pad()")
            before, after = (
                None if part is None else trace.lift(np.ascontiguousarray(part)) for part in filled
            )
            x = cat([part for part in (before, x, after) if part is not None], axis)
    padded: Handle = x
    return padded
