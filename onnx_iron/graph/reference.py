"""The reference run of a trace, in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle, Role, State, Weight
from onnx_iron.graph.region import Region
from onnx_iron.graph.trace import Operand, Step, Trace
from onnx_iron.graph.value import Value, evaluate


def run_reference(
    trace: Trace,
    inputs: Mapping[str, Array],
    values: Mapping[str, int],
    states: dict[str, Array],
) -> dict[str, Array]:
    """Run a trace's steps in order.

    Args:
        inputs: by name, of the shapes and dtypes that were traced.
        values: the per-call integers by name.
        states: by name; missing ones are made, zero, and all are written in place.

    Returns:
        The outputs by name.

    Raises:
        ValueError: an input of another shape or dtype, or a per-call value out of its range.
    """
    for name, handle in trace.inputs.items():
        array = inputs[name]
        if array.shape != handle.shape or array.dtype != handle.dtype:
            raise ValueError(
                f"input {name} is {array.shape} {array.dtype.name}, traced as {handle.shape} "
                f"{handle.dtype.name}"
            )
    run = _Run(trace, inputs, values, states)
    for step in trace.steps:
        run.step(step)
    return {name: np.array(run.read(handle)) for name, handle in trace.outputs.items()}


class _Run:
    def __init__(
        self,
        trace: Trace,
        inputs: Mapping[str, Array],
        values: Mapping[str, int],
        states: dict[str, Array],
    ) -> None:
        self.values = values
        self.arrays: dict[str, Array] = dict(inputs)
        for name, weight in trace.weights.items():
            self.arrays[name] = _loaded(weight)
        for name, state in trace.states.items():
            if state.scratch or name not in states:
                states[name] = _zeros(state)
            self.arrays[name] = states[name]

    def step(self, step: Step) -> None:
        operands = [self._operand(operand) for operand in step.inputs]
        for axis_rows, rows, size in _bounds(step):
            bound = rows.evaluate(self.values)
            if not 0 <= bound <= size:
                raise ValueError(
                    f"{step.op.name} '{step.name}': {rows} is {bound}, expected 0..{size} "
                    f"({axis_rows})"
                )
        try:
            results = step.op.reference(*operands)
        except ValueError as error:
            raise ValueError(f"{step.op.name} '{step.name}': {error}") from None
        if not isinstance(results, tuple):
            results = (results,)
        for handle, result in zip(step.outputs, results, strict=True):
            if handle.parent is None and handle.role is Role.INTERMEDIATE:
                self.arrays[handle.name] = result.reshape(handle.shape)
            else:
                self._write(handle, result, step)

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Value):
            return operand.evaluate(self.values)
        return self.read(operand) if isinstance(operand, Handle) else operand

    def read(self, handle: Handle, valid: Mapping[int, Value] | None = None) -> Array:
        """A handle's elements; of a state, as they are now."""
        valid = {**(valid or {}), **handle.valid}
        if handle.parent is None:
            return self.arrays[handle.name]
        if handle.permutation is not None:
            return self.read(handle.parent).transpose(handle.permutation)
        if handle.index is None or not handle.index.regions:
            same = handle.shape == handle.parent.shape
            return self.read(handle.parent, valid if same else None).reshape(handle.shape)
        array = self.read(handle.parent)
        for region in handle.index.regions:
            rows = valid.get(region.shape_axis) if region.shape_axis is not None else None
            array = self._take(handle, array, region, rows)
        return array

    def _take(self, handle: Handle, array: Array, region: Region, rows: Value | None) -> Array:
        array = array.reshape(region.view_shape)
        start = evaluate(region.start, self.values)
        size = region.view_shape[region.axis]
        needed = region.length if rows is None else rows.evaluate(self.values)
        if start < 0 or start + needed > size:
            raise ValueError(
                f"{handle.name}: {region.start} is {start}, and {needed} entries from there pass "
                f"the {size} there are; expected 0..{size - needed}"
            )
        if start + region.length <= size:
            before = (slice(None),) * region.axis
            array = array[(*before, slice(start, start + region.length))]
        else:  # padding past the bound repeats the last entry
            indices = np.minimum(np.arange(start, start + region.length), size - 1)
            array = array.take(indices, axis=region.axis)
        return array.reshape(region.shape)

    def _write(self, handle: Handle, result: Array, step: Step) -> None:
        source = next(step.tensors())
        bounded = {**handle.valid, **source.valid}
        target = self.read(handle, bounded)
        if not np.shares_memory(target, self.arrays[handle.base.name]):
            # A padded write that would pass the end: only its valid entries have a place.
            target = self._clipped(handle, bounded)
        index = [slice(None)] * target.ndim
        for axis, rows in bounded.items():
            index[axis] = slice(rows.evaluate(self.values))
        target[tuple(index)] = np.broadcast_to(result, handle.shape)[tuple(index)]

    def _clipped(self, handle: Handle, bounded: Mapping[int, Value]) -> Array:
        assert handle.parent is not None
        assert handle.index is not None
        array = self.read(handle.parent)
        for region in handle.index.regions:
            start = evaluate(region.start, self.values)
            before = (slice(None),) * region.axis
            array = array.reshape(region.view_shape)[(*before, slice(start, None))]
        return array


def _bounds(step: Step) -> list[tuple[str, Value, int]]:
    return [
        (f"{handle.name} has {handle.shape[axis]} along axis {axis}", rows, handle.shape[axis])
        for handle in (*step.tensors(), *step.outputs)
        for axis, rows in handle.valid.items()
    ]


def _loaded(weight: Weight) -> Array:
    return weight.load()


def _zeros(state: State) -> Array:
    return np.zeros(state.shape, state.dtype)
