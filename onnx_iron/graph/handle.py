"""Handles: the tensors that a body computes with while it is traced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.context import Recorder
from onnx_iron.graph.refusals import Unknown, missing_method
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


# numpy's functions that are steps: `array * handle` asks for them too.
_ARITHMETIC = {np.add: "Add", np.subtract: "Sub", np.multiply: "Mul", np.divide: "Div"}


class Tensor(Unknown):
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

    def reshape(self, *shape: int | tuple[int, ...]) -> Handle:
        """The same elements in another shape; one dimension may be -1.

        A bound of the leading axis goes along where it still divides.

        Raises:
            TypeError: this is a view (``copy()`` it first).
            ValueError: another number of elements, or a bound that does not fit the new shape.
        """
        return self._handle()._reshape(shape)

    def transpose(self, *axes: int | tuple[int, ...]) -> Handle:
        """A view with its axes in another order (reversed by default)."""
        return self._handle()._transpose(axes)

    def copy(self) -> Handle:
        """A step that copies this tensor, contiguous: what makes an operand of a view."""
        handle = self._handle()
        copied = handle.trace.call("Copy", handle)
        assert isinstance(copied, Handle)
        return copied

    def __getitem__(self, index: Any) -> Handle:
        return self._handle()._index(index)

    def __setitem__(self, index: Any, source: Any) -> None:
        handle = self._handle()
        destination = handle._index(index)
        # `state[a:b] += x` has written that part already, and assigns it to itself then.
        if not destination.is_part(source):
            handle.trace.write(source, destination)

    def __add__(self, other: Any) -> Handle:
        return self._arithmetic("Add", self, other)

    def __radd__(self, other: Any) -> Handle:
        return self._arithmetic("Add", other, self)

    def __sub__(self, other: Any) -> Handle:
        return self._arithmetic("Sub", self, other)

    def __rsub__(self, other: Any) -> Handle:
        return self._arithmetic("Sub", other, self)

    def __mul__(self, other: Any) -> Handle:
        return self._arithmetic("Mul", self, other)

    def __rmul__(self, other: Any) -> Handle:
        return self._arithmetic("Mul", other, self)

    def __truediv__(self, other: Any) -> Handle:
        return self._arithmetic("Div", self, other)

    def __rtruediv__(self, other: Any) -> Handle:
        return self._arithmetic("Div", other, self)

    def __matmul__(self, other: Any) -> Handle:
        return self._row_product(self, other)

    def __rmatmul__(self, other: Any) -> Handle:
        return self._row_product(other, self)

    def __neg__(self) -> Handle:
        return self * -1

    def __pos__(self) -> Self:
        return self

    def __pow__(self, other: Any) -> Handle:
        if isinstance(other, int | float) and other == 2:
            return self * self
        self._unknown(f"** {other!r}", "only ** 2 is a step, the product of it and itself")

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

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> NoReturn:
        self._unknown("comparison", "`is` tells whether two names are one handle, or None")

    __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __eq__

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self._called()} has no len(): it has no axes")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise TypeError(f"{self._called()} is not iterable; index it with integers")

    __reversed__ = __iter__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            if ufunc in _ARITHMETIC:
                return self._arithmetic(_ARITHMETIC[ufunc], *inputs)
            if ufunc is np.matmul:
                return self._row_product(*inputs)
        return super().__array_ufunc__(ufunc)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return missing_method(self, name)

    def _called(self) -> str:
        return repr(self)

    def _unknown(self, what: str, instead: str = "") -> NoReturn:
        then = f"; {instead}" if instead else ""
        raise TypeError(f"{self._called()} has no {what}: its elements are not known yet{then}")

    def _arithmetic(self, op: str, left: Any, right: Any) -> Handle:
        for operand in (left, right):
            if isinstance(operand, Value):
                raise TypeError(
                    f"{op}: {operand} is a per-call value, which indexes and bounds; to compute "
                    "with it make it an input of the graph, an array of one element"
                )
        if not _is_operand(left) or not _is_operand(right):
            return NotImplemented  # type: ignore[no-any-return]
        result: Handle = self._handle().trace.call(op, left, right)
        return result

    def _row_product(self, left: Any, right: Any) -> Handle:
        """``matrix @ row`` and ``row @ matrix``, a row being (n,), or (1, n) on the left."""
        left, right = (x if isinstance(x, Tensor) else as_array(x) for x in (left, right))
        if left is None or right is None:
            return NotImplemented  # type: ignore[no-any-return]
        trace, a, b = self._handle().trace, tuple(left.shape), tuple(right.shape)
        result: Handle
        if len(a) == 2 and len(b) == 1 and a[1] == b[0]:
            result = trace.call("GEMV", left, right)
            return result
        if len(b) == 2 and a in ((b[0],), (1, b[0])):
            row = trace.lift(left).reshape(1, b[0])
            result = trace.call("GEMM", row, right)
            return result.reshape(*a[:-1], b[1])
        raise ValueError(
            f"@ of {a} and {b}: one side is a row (n,), the other a matrix (m, n) on its left or "
            "(n, m) on its right; for several rows use linear()"
        )


def _is_operand(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Tensor | np.generic | int | float) or as_array(value) is not None


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

    def _child(self, name: str, shape: tuple[int, ...], role: Role, **more: Any) -> Handle:
        return Handle(self.trace, name, shape, self.dtype, role, parent=self, **more)

    def _reshape(self, shape: tuple[Any, ...]) -> Handle:
        if len(shape) == 1 and not hasattr(shape[0], "__index__"):
            shape = tuple(shape[0])
        wanted = tuple(int(n) for n in shape)
        if self.role is Role.VIEW:
            raise TypeError(f"{self.name} is a view, which can't be reshaped; copy() it first")
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
        indexed = apply_index(index, self.shape, self.name)
        valid = dict(indexed.bounds)
        for axis, rows in self.valid.items():
            valid |= self._kept_bound(indexed, axis, rows, valid)
        if not indexed.regions:
            if valid != self.valid:
                return self._child(f"{self.name}[:n]", self.shape, self.role, valid=valid)
            return self
        if any(h.role in (Role.SLICE, Role.VIEW) for h in self.lineage()):
            raise TypeError(
                f"{self.name}[...] is a slice of a slice: index the whole tensor once, or copy() it"
            )
        contiguous = len(indexed.regions) == 1 and indexed.regions[0].contiguous
        role = Role.SLICE if contiguous else Role.VIEW
        return self._child(f"{self.name}[...]", indexed.shape, role, valid=valid, index=indexed)

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
