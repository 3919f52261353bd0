"""Which part of a tensor an index names, as steps that can be read and written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx_iron.graph.value import Value


@dataclass(frozen=True)
class Region:
    """``length`` entries from ``start`` along ``axis`` of the tensor seen as ``view_shape``, every
    ``step``-th; more than 1 only from a start that is known.

    ``shape`` is what the region then looks like, and ``bound_axis`` the axis of the whole index's
    result that the range becomes (None where an integer dropped it). Every index is one region or
    several, each inside the one before.
    """

    view_shape: tuple[int, ...]
    axis: int
    start: int | Value
    length: int
    shape: tuple[int, ...]
    bound_axis: int | None = None
    step: int = 1

    @property
    def contiguous(self) -> bool:
        """It is one static run of memory."""
        return (
            math.prod(self.view_shape[: self.axis]) == 1
            and not isinstance(self.start, Value)
            and self.step == 1
        )


@dataclass(frozen=True)
class Indexed:
    """An index applied to a shape: the regions to take, the shape left, the bounds it sets."""

    regions: tuple[Region, ...]
    shape: tuple[int, ...]
    bounds: dict[int, Value]
    kept_axes: tuple[int, ...]


# One axis of an index: where it starts, how many entries, and whether the axis is dropped.
@dataclass(frozen=True)
class _Part:
    start: int | Value
    length: int
    dropped: bool
    step: int = 1

    def whole(self, size: int) -> bool:
        return not self.dropped and not isinstance(self.start, Value) and self.length == size


def apply_index(
    index: Any, shape: tuple[int, ...], name: str, most: Mapping[str, int] | None = None
) -> Indexed:
    """Work out ``index`` (integers, per-call values, slices, an ellipsis) on ``shape``.

    Args:
        most: the largest number that some per-call values may be.

    Raises:
        IndexError: too many axes, or an entry outside of its axis.
        TypeError: an index of another kind.
        ValueError: a step below 1, an empty range, or two axes indexed by per-call values.
    """
    items = _spread(index, shape, name)
    parts: list[_Part] = []
    bounds: dict[int, Value] = {}
    for axis, (item, size) in enumerate(zip(items, shape, strict=True)):
        part, bound = _part(item, size, axis, name, most or {})
        if bound is not None:
            bounds[sum(not p.dropped for p in parts)] = bound
        parts.append(part)
    if sum(isinstance(p.start, Value) for p in parts) > 1:
        raise ValueError(f"{name}[...]: only one axis may be indexed by a per-call value")
    kept = tuple(axis for axis, part in enumerate(parts) if not part.dropped)
    final = tuple(parts[axis].length for axis in kept)
    return Indexed(_regions(parts, shape, final), final, bounds, kept)


def reshaped_bounds(
    valid: Mapping[int, Value], old: tuple[int, ...], new: tuple[int, ...], name: str
) -> dict[int, Value]:
    """The bounds of a tensor in another shape.

    Raises:
        ValueError: one does not fit the new shape.
    """
    bounds = {}
    for axis, rows in valid.items():
        if old[: axis + 1] == new[: axis + 1]:
            bounds[axis] = rows
            continue
        # As many elements lie before an axis as before, and the bound is whole entries of it.
        before, elements = math.prod(old[:axis]), rows * math.prod(old[axis + 1 :])
        for place in range(len(new)):
            row = math.prod(new[place + 1 :])
            if math.prod(new[:place]) != before or not row:
                continue
            if (elements // row) * row == elements:
                bounds[place] = elements // row
                break
        else:
            raise ValueError(
                f"{name}.reshape{new}: axis {axis} is bounded by {rows}, and that bound does not "
                "fit the new shape; reshape before you bound it"
            )
    return bounds


def _spread(index: Any, shape: tuple[int, ...], name: str) -> list[Any]:
    items = list(index) if isinstance(index, tuple) else [index]
    ellipses = sum(item is Ellipsis for item in items)
    if ellipses > 1:
        raise IndexError(f"{name}[...]: an index has one ellipsis at the most")
    if len(items) - ellipses > len(shape):
        raise IndexError(f"{name}[...]: {len(items) - ellipses} indices for shape {shape}")
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    missing = len(shape) - (len(items) - ellipses)
    return items[:at] + [slice(None)] * missing + items[at + 1 :]


def _part(
    item: Any, size: int, axis: int, name: str, most: Mapping[str, int]
) -> tuple[_Part, Value | None]:
    where = f"{name}[...] axis {axis}"
    item = _fixed(item)
    if isinstance(item, Value):
        return _Part(item, 1, True), None
    if isinstance(item, slice):
        return _slice_part(item, size, where, most)
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        at = int(item)
        if not -size <= at < size:
            raise IndexError(f"{where}: index {at} is outside of {size} entries")
        return _Part(at % size, 1, True), None
    if isinstance(item, list) or hasattr(item, "shape"):
        raise TypeError(
            f"{where}: {item!r} is no index: rows are picked by number with x[ids], ids being an "
            "int32 or int64 tensor and the only index, as F.embedding(ids, x) does"
        )
    raise TypeError(
        f"{where}: {item!r} is no index; use an integer, a per-call value, a slice or an ellipsis"
    )


def _fixed(item: Any) -> Any:
    """A per-call value that is the same in every call as that integer."""
    fixed = item.fixed() if isinstance(item, Value) else None
    return item if fixed is None else fixed


def _slice_part(
    item: slice, size: int, where: str, most: Mapping[str, int]
) -> tuple[_Part, Value | None]:
    step = 1 if item.step is None else _fixed(item.step)
    if not isinstance(step, int | np.integer) or isinstance(step, bool) or step < 1:
        raise ValueError(f"{where}: a slice's step is {item.step!r}; it must be at least 1")
    start, stop = _fixed(item.start), _fixed(item.stop)
    if step != 1 and (isinstance(start, Value) or isinstance(stop, Value)):
        raise ValueError(
            f"{where}: a slice by per-call values, {start}:{stop}, has unit steps, not {step}"
        )
    if isinstance(stop, Value) and not isinstance(start, Value) and start in (None, 0):
        return _Part(0, size, False), stop
    if isinstance(start, Value) or isinstance(stop, Value):
        length = (stop - start) if start is not None and stop is not None else None
        bound = None
        if isinstance(length, Value):
            fixed = length.fixed()
            if fixed is None and set(length.names()) <= set(most):
                # So many entries at the most, of which a call's are valid.
                bound, fixed = length, length.evaluate(most)
            length = fixed
        if length is None or not 0 < length <= size:
            raise ValueError(
                f"{where}: a slice by per-call values has a fixed number of entries, "
                f"[p : p + n] with n in 1..{size}, or rows that the graph declares as the bound "
                f"of an input; this one is {start}:{stop}"
            )
        return _Part(start, int(length), False), bound
    taken = range(size)[slice(start, stop, int(step))]
    if not taken and size:
        raise ValueError(f"{where}: {start}:{stop} is empty on {size} entries")
    return _Part(taken.start, len(taken), False, taken.step if len(taken) > 1 else 1), None


def _regions(
    parts: list[_Part], shape: tuple[int, ...], final: tuple[int, ...]
) -> tuple[Region, ...]:
    """As few regions as possible: a run of dropped axes and the range after it are one."""
    regions: list[Region] = []
    sizes = list(shape)  # the axes as they are after the regions so far, dropped ones kept as 1
    axis = 0
    while axis < len(parts):
        if parts[axis].whole(shape[axis]):
            axis += 1
            continue
        # Dropped axes in a row, then at most one range, address one flat axis. A per-call value
        # may only lead: behind another axis, one past its own end would pass for the next entry.
        start: int | Value = 0
        first, length, bound_axis, step = axis, 1, None, 1
        while axis < len(parts) and bound_axis is None:
            part = parts[axis]
            if axis > first and isinstance(part.start, Value):
                break
            start = start * shape[axis] + part.start
            if not part.dropped:
                length, bound_axis = part.length, sum(not p.dropped for p in parts[:axis])
                step = part.step
            axis += 1
        view = (*sizes[:first], math.prod(shape[first:axis]), *sizes[axis:])
        sizes[first:axis] = [1] * (axis - first - 1) + [length]
        regions.append(Region(view, first, start, length, tuple(sizes), bound_axis, step))
    if regions:
        regions[-1] = replace(regions[-1], shape=final)
    return tuple(regions)
