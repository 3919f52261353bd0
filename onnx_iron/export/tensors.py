"""Handles as ONNX values: parts that are read, and writes, each of which is a new value."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_iron.dtypes import INT32, Spec
from onnx_iron.export.functions import Functions
from onnx_iron.export.nodes import Nodes
from onnx_iron.export.scalars import scalar
from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.region import Region
from onnx_iron.graph.value import Value
from onnx_iron.operators import OPERATORS

_Shape = tuple[int, ...]
_SCALAR = Spec((), INT32)


class Tensors:
    """The values of a trace's handles, as the steps go on.

    Attributes:
        values: those of whole handles, by role and name.
        versions: of each state, its value after the writes so far.
    """

    def __init__(self, nodes: Nodes, functions: Functions) -> None:
        self.values: dict[tuple[Role, str], str] = {}
        self.versions: dict[str, str] = {}
        self._nodes = nodes
        self._functions = functions

    def new_state(self, name: str, spec: Spec) -> str:
        """The value that a written state has at the end.

        One that no call changes is a copy, a node of ours: onnxruntime folds standard nodes of
        constants, and would fill a buffer that the state shares before what it held is read.
        """
        value = self.versions[name]
        if not self._nodes.foldable(value):
            return value
        copied = self._nodes.unique(f"{name}.copy")
        return self._functions.add(OPERATORS["Copy"](), copied, [value], [spec], [copied])[0]

    # -- reading ----------------------------------------------------------------------------

    def read(self, handle: Handle, valid: Mapping[int, Value] | None = None) -> str:
        """The ONNX value of a handle; of a state, after the writes so far."""
        bounds = {**(valid or {}), **handle.valid}
        if handle.parent is None:
            if handle.role is Role.STATE:
                return self.versions[handle.name]
            return self.values[handle.role, handle.name]
        if handle.permutation is not None:
            turned = {handle.permutation[axis]: rows for axis, rows in bounds.items()}
            parent = self.read(handle.parent, turned)
            return self._nodes.once(
                ("Transpose", parent, handle.permutation),
                lambda: self._nodes.node(
                    "Transpose", [parent], f"{parent}.transpose", perm=handle.permutation
                ),
            )
        if handle.index is None or not handle.index.regions:
            same = handle.shape == handle.parent.shape
            parent = self.read(handle.parent, bounds if same else None)
            return self._nodes.reshape(parent, handle.parent.shape, handle.shape)
        value, shape = self.read(handle.parent), handle.parent.shape
        for region in handle.index.regions:
            value = self._take(value, shape, region, _rows(region, bounds), handle)
            shape = region.shape
        return value

    def _take(
        self, value: str, shape: _Shape, region: Region, rows: Value | None, handle: Handle
    ) -> str:
        seen = self._nodes.reshape(value, shape, region.view_shape)
        taken_shape = _part_shape(region)
        start = region.start
        if isinstance(start, Value):
            taken = self._nodes.once(
                ("Narrow", seen, region.axis, start, region.length, rows),
                lambda: self._narrow(seen, region, rows, handle),
            )
        else:
            last = start + (region.length - 1) * region.step
            where = (start, last + 1, region.axis, *([region.step] if region.step > 1 else []))
            taken = self._nodes.once(
                ("Slice", seen, where),
                lambda: self._nodes.node(
                    "Slice", [seen, *(self._nodes.shape([n]) for n in where)], f"{value}.slice"
                ),
            )
        self._nodes.info(taken, handle.dtype, taken_shape)
        return self._nodes.reshape(taken, taken_shape, region.shape)

    def _narrow(self, seen: str, region: Region, rows: Value | None, handle: Handle) -> str:
        op = OPERATORS["Narrow"].from_attributes({"axis": region.axis, "length": region.length})
        inputs = [seen, scalar(self._nodes, region.start), self._optional(rows)]
        specs = [Spec(region.view_shape, handle.dtype), _SCALAR, None if rows is None else _SCALAR]
        name = self._nodes.unique(f"{handle.base.name}.narrow")
        return self._functions.add(op, name, inputs, specs, [name])[0]

    def _optional(self, rows: Value | None) -> str:
        return "" if rows is None else scalar(self._nodes, rows)

    # -- writing ----------------------------------------------------------------------------

    def write(
        self, handle: Handle, source: str, shape: _Shape, bounds: Mapping[int, Value]
    ) -> None:
        """A write through a handle: a new value of its state, part by part from the inside."""
        if shape != handle.shape:  # one number for all entries
            source = self._nodes.node(
                "Expand", [source, self._nodes.shape(handle.shape)], f"{source}.expand"
            )
        if handle.parent is None:
            self.versions[handle.name] = self._bounded(handle, source, bounds)
            return
        if handle.permutation is not None:
            inverse = tuple(np.argsort(handle.permutation))
            turned = self._nodes.node("Transpose", [source], f"{source}.transpose", perm=inverse)
            bounds = {handle.permutation[axis]: rows for axis, rows in bounds.items()}
            self.write(handle.parent, turned, handle.parent.shape, bounds)
            return
        if handle.index is None or not handle.index.regions:
            if handle.shape == handle.parent.shape:
                self.write(handle.parent, source, handle.shape, bounds)
                return
            whole = self._bounded(handle, source, bounds)
            back = self._nodes.reshape(whole, handle.shape, handle.parent.shape)
            self.write(handle.parent, back, handle.parent.shape, {})
            return
        self._write_regions(handle, handle.parent, handle.index.regions, source, bounds)

    def _write_regions(
        self,
        handle: Handle,
        parent: Handle,
        regions: tuple[Region, ...],
        source: str,
        bounds: Mapping[int, Value],
    ) -> None:
        # What each region is a part of, from the outside in.
        outer = [(self.read(parent), parent.shape)]
        for region in regions[:-1]:
            value, shape = outer[-1]
            taken = self._take(value, shape, region, _rows(region, bounds), handle)
            outer.append((taken, region.shape))
        # Which region counts the bounded axis; where none does, that axis is kept as it is.
        if bounds and not any(region.bound_axis in bounds for region in regions):
            source = self._bounded(handle, source, bounds)
        shape = handle.shape
        for region, (value, outer_shape) in zip(reversed(regions), reversed(outer), strict=True):
            seen = self._nodes.reshape(value, outer_shape, region.view_shape)
            part = self._nodes.reshape(source, shape, _part_shape(region))
            written = self._scatter(handle, seen, part, region, _rows(region, bounds))
            source = self._nodes.reshape(written, region.view_shape, outer_shape)
            shape = outer_shape
        self.write(parent, source, parent.shape, {})

    def _bounded(self, handle: Handle, source: str, bounds: Mapping[int, Value]) -> str:
        """``source`` where it is valid, what the handle held elsewhere."""
        for axis, rows in bounds.items():
            whole = Region(handle.shape, axis, 0, handle.shape[axis], handle.shape)
            source = self._scatter(handle, self.read(handle), source, whole, rows)
        return source

    def _scatter(
        self, handle: Handle, value: str, part: str, region: Region, rows: Value | None
    ) -> str:
        if region.step > 1:
            return self._scatter_apart(value, part, region)
        op = OPERATORS["SliceScatter"].from_attributes({"axis": region.axis})
        inputs = [value, part, scalar(self._nodes, region.start), self._optional(rows)]
        whole, given = (
            Spec(shape, handle.dtype) for shape in (region.view_shape, _part_shape(region))
        )
        specs = [whole, given, _SCALAR, None if rows is None else _SCALAR]
        name = self._nodes.unique(f"{handle.base.name}.write")
        made = self._functions.add(op, name, inputs, specs, [name])[0]
        self._nodes.info(made, handle.dtype, region.view_shape)
        return made

    def _scatter_apart(self, value: str, part: str, region: Region) -> str:
        """``part`` at every few entries of ``value``: each entry is one of either."""
        assert isinstance(region.start, int)
        size = region.view_shape[region.axis]
        index = np.arange(size)
        index[region.start :: region.step][: region.length] = size + np.arange(region.length)
        both = self._nodes.node("Concat", [value, part], f"{value}.both", axis=region.axis)
        inputs = [both, self._nodes.constant(index)]
        return self._nodes.node("Gather", inputs, f"{value}.write", axis=region.axis)


def _rows(region: Region, bounds: Mapping[int, Value]) -> Value | None:
    return None if region.bound_axis is None else bounds.get(region.bound_axis)


def _part_shape(region: Region) -> _Shape:
    view, axis = region.view_shape, region.axis
    return (*view[:axis], region.length, *view[axis + 1 :])
