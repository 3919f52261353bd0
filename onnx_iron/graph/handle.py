"""Handles: the tensors that a body computes with while it is traced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NoReturn

import numpy as np

from onnx_iron.dtypes import INDICES
from onnx_iron.graph.arithmetic import Arithmetic
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.context import Recorder
from onnx_iron.graph.refusals import missing_method
from onnx_iron.graph.region import Indexed, apply_index, reshaped_bounds
from onnx_iron.graph.value import Value


class Role(Enum):
    """What a handle is in its graph."""

    INPUT = "input"
    WEIGHT = "weight"
    STATE = "state"
    INTERMEDIATE = "intermediate"
    SLICE = "slice"
    VIEW = "view"


class Tensor(Arithmetic):
    """What handles, states and weights share: inside a body each is computed with and indexed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def _handle(self) -> Handle:
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def T(self) -> Handle:  # noqa: N802 - numpy's and torch's name
        """A view with its axes reversed."""
        return self.transpose()

    def view(self, *shape: int | tuple[int, ...]) -> Handle:
        """``reshape`` by torch's other name."""
        return self.reshape(*shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one dimension of it."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def reshape(self, *shape: int | tuple[int, ...]) -> Handle:
        """The same elements in another shape; one dimension may be -1.

        A bound goes along where it still divides.

        Raises:
            ValueError: another number of elements, or a bound that does not fit the new shape.
        """
        return self._handle()._reshape(shape)

    def transpose(self, *axes: int | tuple[int, ...]) -> Handle:
        """A view with its axes in another order (reversed by default); of more than two axes, two
        numbers are the axes that change places, as torch's.
        """
        handle = self._handle()
        if len(axes) == 2 and handle.ndim > 2 and all(hasattr(a, "__index__") for a in axes):
            order = list(range(handle.ndim))
            one, other = (order[a] for a in axes)  # type: ignore[index]
            order[one], order[other] = other, one
            axes = tuple(order)
        return handle._transpose(axes)

    def permute(self, *dims: int | tuple[int, ...]) -> Handle:
        """A view with its axes in another order."""
        handle = self._handle()
        order = dims if dims and hasattr(dims[0], "__index__") else tuple(*dims)  # type: ignore[arg-type]
        if len(order) != handle.ndim:
            raise ValueError(f"{handle.name}.permute{order}: not an order of {handle.ndim} axes")
        return handle._transpose(order)

    def unsqueeze(self, dim: int) -> Handle:
        """The same with an axis of one entry put in at ``dim``."""
        handle = self._handle()
        place = dim + handle.ndim + 1 if dim < 0 else dim
        if not 0 <= place <= handle.ndim:
            raise IndexError(f"{handle.name}.unsqueeze({dim}): it has {handle.ndim} axes")
        return handle.reshape(*handle.shape[:place], 1, *handle.shape[place:])

    def squeeze(self, dim: int | None = None) -> Handle:
        """The same without the axes of one entry, or without ``dim`` if that has one."""
        handle = self._handle()
        if dim is not None and not -handle.ndim <= dim < handle.ndim:
            raise IndexError(f"{handle.name}.squeeze({dim}): it has {handle.ndim} axes")
        places = range(handle.ndim) if dim is None else [dim % handle.ndim]
        dropped = {place for place in places if handle.shape[place] == 1}
        kept = [n for place, n in enumerate(handle.shape) if place not in dropped]
        return handle.reshape(*kept) if kept else handle.reshape(())

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Handle:
        """The same with the axes ``start_dim`` to ``end_dim`` as one."""
        handle = self._handle()
        first, last = start_dim % max(handle.ndim, 1), end_dim % max(handle.ndim, 1)
        if first > last:
            raise ValueError(f"{handle.name}.flatten({start_dim}, {end_dim}): they are reversed")
        return handle.reshape(*handle.shape[:first], -1, *handle.shape[last + 1 :])

    def contiguous(self) -> Handle:
        """The tensor itself: whatever needs its elements in a row gets them so."""
        return self._handle()

    def copy(self) -> Handle:
        """A step that copies this tensor: what it holds now, whatever a state becomes later."""
        handle = self._handle()
        copied = handle.trace.call("Copy", handle)
        assert isinstance(copied, Handle)
        return copied

    def __getitem__(self, index: Any) -> Handle:
        """A part of it; by an int32 or int64 tensor of numbers, the entries of the first axis."""
        handle = self._handle()
        ids = _numbers(index, handle)
        if ids is None:
            return handle._index(index)
        rows = handle.reshape(handle.shape[0], -1)
        taken: Handle = handle.trace.call("Embedding", rows, ids)
        return taken.reshape(*taken.shape[:-1], *handle.shape[1:])

    def __setitem__(self, index: Any, source: Any) -> None:
        handle = self._handle()
        destination = handle._index(index)
        # `state[a:b] += x` has written that part already, and assigns it to itself then.
        if not destination.is_part(source):
            handle.trace.write(source, destination)

    def __iadd__(self, other: Any) -> Any:
        return self._in_place(self + other)

    def __isub__(self, other: Any) -> Any:
        return self._in_place(self - other)

    def __imul__(self, other: Any) -> Any:
        return self._in_place(self * other)

    def __itruediv__(self, other: Any) -> Any:
        return self._in_place(self / other)

    def _in_place(self, result: Any) -> Any:
        """What ``x += ...`` leaves in ``x``: a state or a part of one is written; a whole handle
        is another one from then on; a part of anything else can't be.
        """
        handle = self._handle()
        if handle.base.role is Role.STATE:
            handle.trace.write(result, handle)
            return self
        if isinstance(self, Handle) and handle.whole:
            return result
        raise TypeError(
            f"{handle.name} can't be written: only a state can, and its base is the "
            f"{handle.base.role.value} {handle.base.name}; write y = y + x"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self._called()} has no len(): it has no axes")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise TypeError(f"{self._called()} is not iterable; index it with integers")

    __reversed__ = __iter__

    def __getattr__(self, name: str) -> Any:
        return missing_method(self, name)

    def _called(self) -> str:
        return repr(self)

    def _unknown(self, what: str, instead: str = "") -> NoReturn:
        then = f"; {instead}" if instead else ""
        raise TypeError(f"{self._called()} has no {what}: its elements are not known yet{then}")


class Handle(Tensor):
    """A tensor of a graph being traced: its shape, dtype, name, role and bounds, no elements.

    Attributes:
        valid: bounds by axis, per call: the first so many entries are valid, the rest is padding.
        parent: the handle that this one is a part or another shape of.
        index: how a slice or a view takes its part of the parent.
        permutation: the axes' order of a transposed view.
    """

    def __init__(
        self,
        trace: Recorder,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        role: Role,
        *,
        parent: Handle | None = None,
        valid: Mapping[int, Value] | None = None,
        index: Indexed | None = None,
        permutation: tuple[int, ...] | None = None,
    ) -> None:
        self.trace = trace
        self.name = name
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.role = role
        self.parent = parent
        self.valid: dict[int, Value] = dict(valid or {})
        self.index = index
        self.permutation = permutation

    def _handle(self) -> Handle:
        return self

    def _called(self) -> str:
        return self.name

    def lineage(self) -> Iterator[Handle]:
        """This handle, its parent, and so on to the base."""
        handle: Handle | None = self
        while handle is not None:
            yield handle
            handle = handle.parent

    @property
    def base(self) -> Handle:
        """The input, weight, state or intermediate whose elements these are."""
        return list(self.lineage())[-1]

    @property
    def whole(self) -> bool:
        """It has all elements of its base, in their order."""
        return not any(h.permutation or (h.index and h.index.regions) for h in self.lineage())

    def is_part(self, other: Any) -> bool:
        """Whether ``other`` is the very same part of a state, bounds and all."""
        if self is other:
            return self.base.role is Role.STATE
        return (
            isinstance(other, Handle)
            and self.base.role is Role.STATE
            and self.parent is not None
            and self.parent is other.parent
            and (self.shape, self.index, self.permutation)
            == (other.shape, other.index, other.permutation)
            and self.valid == other.valid
        )

    def unbounded(self) -> Handle:
        """The same elements, those behind the bounds with them."""
        if not self.valid:
            return self
        return self._child(f"{self.name}[...]", self.shape, self.role)

    def _child(self, name: str, shape: tuple[int, ...], role: Role, **more: Any) -> Handle:
        return Handle(self.trace, name, shape, self.dtype, role, parent=self, **more)

    def _reshape(self, shape: tuple[Any, ...]) -> Handle:
        if len(shape) == 1 and not hasattr(shape[0], "__index__"):
            shape = tuple(shape[0])
        wanted = tuple(int(n) for n in shape)
        count = math.prod(self.shape)
        if wanted.count(-1) == 1:
            rest = -math.prod(wanted)
            if rest > 0 and count % rest == 0:
                wanted = tuple(count // rest if n == -1 else n for n in wanted)
        if math.prod(wanted) != count or any(n < 0 for n in wanted):
            raise ValueError(
                f"{self.name}.reshape{wanted}: {self.shape} has {count} elements, "
                f"the new shape {math.prod(wanted)}"
            )
        valid = reshaped_bounds(self.valid, self.shape, wanted, self.name)
        whole: Handle = self
        while whole._is_reshape and whole.parent is not None:
            whole = whole.parent  # a shape in between leaves no trace, however many there are
        return whole._child(f"{whole.name}.reshape", wanted, self.role, valid=valid)

    @property
    def _is_reshape(self) -> bool:
        return (
            self.parent is not None
            and self.index is None
            and self.permutation is None
            and self.shape != self.parent.shape
        )

    def _transpose(self, axes: tuple[Any, ...]) -> Handle:
        if len(axes) == 1 and not hasattr(axes[0], "__index__"):
            axes = tuple(axes[0])
        order = tuple(int(a) for a in axes) or tuple(reversed(range(self.ndim)))
        if all(-self.ndim <= a < self.ndim for a in order):
            order = tuple(a % self.ndim for a in order)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"{self.name}.transpose{order}: not an order of {self.ndim} axes")
        if order == tuple(range(self.ndim)):
            return self
        valid = {order.index(axis): rows for axis, rows in self.valid.items()}
        shape = tuple(self.shape[a] for a in order)
        whole: Handle = self
        if self.permutation is not None and self.parent is not None:
            whole, order = self.parent, tuple(self.permutation[a] for a in order)
        if order == tuple(range(self.ndim)):
            return whole
        return whole._child(
            f"{whole.name}.transpose",
            shape,
            Role.VIEW,
            valid=valid,
            permutation=order,
        )

    def _index(self, index: Any) -> Handle:
        items = index if isinstance(index, tuple) else (index,)
        if any(item is None for item in items):
            return self._with_new_axes(items)
        indexed = apply_index(index, self.shape, self.name, self.trace.most)
        valid = dict(indexed.bounds)
        for axis, rows in self.valid.items():
            valid |= self._kept_bound(indexed, axis, rows, valid)
        if not indexed.regions:
            if valid != self.valid:
                return self._child(f"{self.name}[:n]", self.shape, self.role, valid=valid)
            return self
        contiguous = len(indexed.regions) == 1 and indexed.regions[0].contiguous
        role = Role.SLICE if contiguous and self.role is not Role.VIEW else Role.VIEW
        return self._child(f"{self.name}[...]", indexed.shape, role, valid=valid, index=indexed)

    def _with_new_axes(self, items: tuple[Any, ...]) -> Handle:
        """An index in which None puts in an axis of one entry."""
        part = self._index(tuple(item for item in items if item is not None))
        spread = self.ndim - sum(item is not None and item is not Ellipsis for item in items)
        shape: list[int] = []
        rest = list(part.shape)
        for item in items:
            if item is None:
                shape.append(1)
            elif isinstance(item, slice) or item is Ellipsis:
                count = spread if item is Ellipsis else 1
                shape += [rest.pop(0) for _ in range(count)]
        return part.reshape(*shape, *rest)

    def _kept_bound(
        self, indexed: Indexed, axis: int, rows: Value, new: Mapping[int, Value]
    ) -> dict[int, Value]:
        if axis not in indexed.kept_axes:
            return {}  # one entry of a bounded axis: the caller chose a valid one
        kept = indexed.kept_axes.index(axis)
        if indexed.shape[kept] != self.shape[axis]:
            raise ValueError(
                f"{self.name}[...]: axis {axis} is bounded by {rows}; take a part of it before "
                "you bound it"
            )
        if kept in new and new[kept] != rows:
            raise ValueError(
                f"{self.name}[...]: axis {axis} is bounded by {rows} already, not by {new[kept]}"
            )
        return {kept: rows}

    def __repr__(self) -> str:
        return f"<Handle {self.name} {self.role.value} {self.shape} {self.dtype.name}>"


def _numbers(index: Any, handle: Handle) -> Any:
    """The entries that an index picks by number; None for an index of another kind.

    Raises:
        TypeError: numbers that are none, such as a mask.
    """
    array = np.asarray(index) if isinstance(index, list) and index else as_array(index)
    ids = index if isinstance(index, Tensor) else array
    if ids is None:
        return None
    if ids.dtype not in INDICES or not handle.ndim:
        raise TypeError(
            f"{handle.name}[...]: {index!r} is no index; entries are picked by int32 or int64 "
            "numbers, and a mask chooses with F.where(mask, x, other)"
        )
    if isinstance(ids, Tensor):
        return ids
    return np.where(ids < 0, ids + handle.shape[0], ids).astype(ids.dtype)
