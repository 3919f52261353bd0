"""Which part of a tensor an index names, as steps that can be read and written."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx_iron.graph.value import Value


@dataclass(frozen=True)
class Region:
    """``length`` entries from ``start`` along ``axis`` of the tensor seen as ``view_shape``.

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

    @property
    def contiguous(self) -> bool:
        """It is one static run of memory."""
        return math.prod(self.view_shape[: self.axis]) == 1 and not isinstance(self.start, Value)


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

    def whole(self, size: int) -> bool:
        return not self.dropped and not isinstance(self.start, Value) and self.length == size


def apply_index(index: Any, shape: tuple[int, ...], name: str) -> Indexed:
    """Work out ``index`` (integers, per-call values, unit-step slices, an ellipsis) on ``shape``.

    Raises:
        IndexError: too many axes, or an entry outside of its axis.
        TypeError: an index of another kind.
        ValueError: a step other than 1, an empty range, or two axes indexed by per-call values.
    """
    items = _spread(index, shape, name)
    parts: list[_Part] = []
    bounds: dict[int, Value] = {}
    for axis, (item, size) in enumerate(zip(items, shape, strict=True)):
        part, bound = _part(item, size, axis, name)
        if bound is not None:
            bounds[sum(not p.dropped for p in parts)] = bound
        parts.append(part)
    if sum(isinstance(p.start, Value) for p in parts) > 1:
        raise ValueError(f"{name}[...]: only one axis may be indexed by a per-call value")
    kept = tuple(axis for axis, part in enumerate(parts) if not part.dropped)
    final = tuple(parts[axis].length for axis in kept)
    return Indexed(_regions(parts, shape, final), final, bounds, kept)


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


def _part(item: Any, size: int, axis: int, name: str) -> tuple[_Part, Value | None]:
    where = f"{name}[...] axis {axis}"
    if isinstance(item, Value):
        return _Part(item, 1, True), None
    if isinstance(item, slice):
        return _slice_part(item, size, where)
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        at = int(item)
        if not -size <= at < size:
            raise IndexError(f"{where}: index {at} is outside of {size} entries")
        return _Part(at % size, 1, True), None
    if isinstance(item, list) or hasattr(item, "shape"):
        raise TypeError(
            f"{where}: {item!r} is no index: a body picks rows by number with F.embedding(ids, "
            "table), ids being an int32 or int64 input of the graph"
        )
    raise TypeError(
        f"{where}: {item!r} is no index; use an integer, a per-call value, a slice or an ellipsis"
    )


def _slice_part(item: slice, size: int, where: str) -> tuple[_Part, Value | None]:
    if item.step not in (None, 1):
        raise ValueError(f"{where}: a slice has unit steps, not {item.step}")
    start, stop = item.start, item.stop
    if isinstance(stop, Value) and not isinstance(start, Value) and start in (None, 0):
        return _Part(0, size, False), stop
    if isinstance(start, Value) or isinstance(stop, Value):
        length = (stop - start) if start is not None and stop is not None else None
        if isinstance(length, Value):
            length = length.fixed()
        if length is None or not 0 < length <= size:
            raise ValueError(
                f"{where}: a slice by per-call values has a fixed number of entries, "
                f"[p : p + n] with n in 1..{size}; this one is {start}:{stop}"
            )
        return _Part(start, length, False), None
    first, last, _ = item.indices(size)
    if last <= first and size:
        raise ValueError(f"{where}: {start}:{stop} is empty on {size} entries")
    return _Part(first, last - first, False), None


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
        first, length, bound_axis = axis, 1, None
        while axis < len(parts) and bound_axis is None:
            part = parts[axis]
            if axis > first and isinstance(part.start, Value):
                break
            start = start * shape[axis] + part.start
            if not part.dropped:
                length, bound_axis = part.length, sum(not p.dropped for p in parts[:axis])
            axis += 1
        view = (*sizes[:first], math.prod(shape[first:axis]), *sizes[axis:])
        sizes[first:axis] = [1] * (axis - first - 1) + [length]
        regions.append(Region(view, first, start, length, tuple(sizes), bound_axis))
    if regions:
        regions[-1] = replace(regions[-1], shape=final)
    return tuple(regions)
