"""The reference run of a trace, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.leading import bounds_of
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.region import Region
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.graph.value import Value, evaluate

if TYPE_CHECKING:
    from onnx_iron.operators.base import Op

# What computes a step: its operator and operands to an array, or a tuple of them.
Compute: TypeAlias = "Callable[[Op, Sequence[Any]], Any]"


def by_reference(op: Op, operands: Sequence[Any]) -> Any:
    """A step by its operator's own reference."""
    return op.reference(*operands)


def run_reference(
    trace: Trace,
    inputs: Mapping[str, Array],
    values: Mapping[str, int],
    states: dict[str, Array],
    compute: Compute = by_reference,
) -> dict[str, Array]:
    """Run a trace's steps in order.

    Args:
        inputs: by name, of the shapes and dtypes that were traced.
        values: the per-call integers by name.
        states: by name; missing ones are made, zero, and all are written in place.
        compute: what a step gives; the operators' references where nothing else is given.

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
    run = _Run(trace, inputs, values, states, compute)
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
        compute: Compute,
    ) -> None:
        self.values = values
        self.compute = compute
        # By role too: a weight may have the name of an input or of a step.
        self.arrays: dict[tuple[Role, str], Array] = {}
        for name in trace.inputs:
            self.arrays[Role.INPUT, name] = inputs[name]
        for name, weight in trace.weights.items():
            self.arrays[Role.WEIGHT, name] = weight.load()
        for name, state in trace.states.items():
            if state.scratch or name not in states:
                states[name] = np.zeros(state.shape, state.dtype)
            self.arrays[Role.STATE, name] = states[name]

    def step(self, step: Step) -> None:
        try:
            self._step(step)
        except ValueError as error:
            raise ValueError(f"{step.op.name} '{step.name}': {error}") from None

    def _step(self, step: Step) -> None:
        for handle in (*step.tensors(), *step.outputs):
            self._check_bounds(handle)
        operands = [self._operand(operand) for operand in step.inputs]
        with np.errstate(all="ignore"):
            results = self.compute(step.op, operands)
        if not isinstance(results, tuple):
            results = (results,)
        for handle, result in zip(step.outputs, results, strict=True):
            if handle.role is Role.INTERMEDIATE and handle.parent is None:
                self.arrays[handle.role, handle.name] = result.reshape(handle.shape)
            else:
                source = next(step.tensors())
                self._write(handle, result, {**handle.valid, **source.valid})

    def _check_bounds(self, handle: Handle) -> None:
        for part, axis, rows in bounds_of(handle):
            bound, size = rows.evaluate(self.values), part.shape[axis]
            if not 0 <= bound <= size:
                raise ValueError(
                    f"{rows} is {bound}, expected 0..{size} "
                    f"({part.name} has {size} entries along axis {axis})"
                )

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Value):
            return operand.evaluate(self.values)
        return self.read(operand) if isinstance(operand, Handle) else operand

    def read(
        self, handle: Handle, valid: Mapping[int, Value] | None = None, base: Array | None = None
    ) -> Array:
        """A handle's elements; of a state, as they are now.

        Args:
            handle: what to read.
            valid: bounds besides the handle's own.
            base: read from instead of the handle's base.
        """
        valid = {**(valid or {}), **handle.valid}
        parent = handle.parent
        if parent is None:
            return self.arrays[handle.role, handle.name] if base is None else base
        if handle.permutation is not None:
            turned = {handle.permutation[axis]: rows for axis, rows in valid.items()}
            return self.read(parent, turned, base).transpose(handle.permutation)
        if handle.index is None or not handle.index.regions:
            same = handle.shape == parent.shape
            return self.read(parent, valid if same else None, base).reshape(handle.shape)
        array = self.read(parent, None, base)
        for region in handle.index.regions:
            rows = valid.get(region.bound_axis) if region.bound_axis is not None else None
            array = self._take(handle, array, region, rows)
        return array

    def _take(self, handle: Handle, array: Array, region: Region, rows: Value | None) -> Array:
        array = array.reshape(region.view_shape)
        start = evaluate(region.start, self.values)
        size = region.view_shape[region.axis]
        needed = region.length if rows is None else rows.evaluate(self.values)
        if not 0 <= start <= size - needed:
            raise ValueError(
                f"{handle.name}: {region.start} is {start}, expected 0..{size - needed} "
                f"({needed} of {size} entries)"
            )
        last = start + (region.length - 1) * region.step
        if last < size:
            before = (slice(None),) * region.axis
            array = array[(*before, slice(start, last + 1, region.step))]
        else:  # padding past the bound repeats the last entry
            indices = np.minimum(np.arange(start, start + region.length), size - 1)
            array = array.take(indices, axis=region.axis)
        return array.reshape(region.shape)

    def _write(self, handle: Handle, result: Array, bounds: Mapping[int, Value]) -> None:
        state = self.arrays[Role.STATE, handle.base.name]
        # Where each element of the handle is in its state.
        places = self.read(handle, bounds, np.arange(state.size).reshape(state.shape))
        valid = [slice(None)] * places.ndim
        for axis, rows in bounds.items():
            valid[axis] = slice(rows.evaluate(self.values))
        source = np.broadcast_to(result, handle.shape)
        np.put(state, places[tuple(valid)], source[tuple(valid)])
