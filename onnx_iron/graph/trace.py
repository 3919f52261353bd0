"""Recording a body's operator steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx_iron.dtypes import INT32, Array, Spec
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.operand import Operand, as_number
from onnx_iron.graph.parts import State, Weight
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import OPERATORS, STANDARD, Op


@dataclass(frozen=True)
class Step:
    """One operator at work: its operands in the operator's order, and what it writes.

    Attributes:
        op: the operator, with its attributes.
        name: unique in the trace.
        inputs: None where an optional operand is omitted.
        outputs: new handles; for a Copy into a state, the part written.
        tunables: what only changes speed, for a backend to take or leave.
    """

    op: Op
    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Handle, ...]
    tunables: Mapping[str, int] = field(default_factory=dict)

    def tensors(self) -> Iterator[Handle]:
        """The handles read."""
        return (operand for operand in self.inputs if isinstance(operand, Handle))

    def values(self) -> Iterator[Value]:
        """The per-call integers read."""
        return (operand for operand in self.inputs if isinstance(operand, Value))


class Trace:
    """The steps of one body, for one set of input shapes, in the order they were recorded.

    Attributes:
        inputs: the handles that the body was given, by name.
        value_names: the per-call values that the body was given.
        weights: those used so far, by name.
        states: those used so far, by name.
        outputs: what the body returned, by name.
        returned: the same as the body returned it: a handle, a tuple or a dict.
        single: by input the axes that the graph's ``bounds`` name and that have one entry here.

    Args:
        parts: the graph's weights and states by name.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.steps: list[Step] = []
        self.most: Mapping[str, int] = {}
        self.inputs: dict[str, Handle] = {}
        self.value_names: list[str] = []
        self.weights: dict[str, Weight] = {}
        self.states: dict[str, State] = {}
        self.outputs: dict[str, Handle] = {}
        self.returned: Any = None
        self.single: dict[str, list[int]] = {}
        self._parts = dict(parts)
        self._names = {id(part): name for name, part in parts.items()}
        self._lifted: dict[int, Handle] = {}
        self._kept: list[Any] = []  # ids name objects: they must live as long as the trace
        self._paths: set[str] = set()  # of the weights used that the graph holds
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._scope = ""  # where the last weight or state used is kept

    def input(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Handle:
        """Add an input of the graph."""
        handle = Handle(self, name, shape, dtype, Role.INPUT)
        self.inputs[name] = handle
        return handle

    def value(self, name: str) -> Value:
        """Add a per-call value."""
        self.value_names.append(name)
        return Value.named(name)

    def input_bounds(self) -> Iterator[tuple[str, int, Value]]:
        """Each input's bounded axes, as the steps read it."""
        for step in self.steps:
            for handle in step.tensors():
                base = handle.base
                if base.role is Role.INPUT:
                    for part in handle.lineage():
                        if part.shape == base.shape and part.whole:
                            yield from (
                                (base.name, axis, rows) for axis, rows in part.valid.items()
                            )

    def lift(self, operand: Any, like: np.dtype[Any] | None = None) -> Handle:
        """The handle of a state, a weight, an array or a number (which takes the dtype ``like``).

        Raises:
            TypeError: something else, or a number where no dtype is known.
            ValueError: a handle of another trace.
        """
        if isinstance(operand, Handle):
            if operand.trace is not self:
                raise ValueError(
                    f"{operand.name} belongs to another trace; a body keeps no handles"
                )
            return operand
        if id(operand) in self._lifted:
            return self._lifted[id(operand)]
        if isinstance(operand, State):
            handle = self._lift_state(operand)
        elif isinstance(operand, Weight):
            handle = self._lift_weight(operand, self._names.get(id(operand)))
        elif (array := as_array(operand)) is not None and array.ndim:
            name = self._names.get(id(operand)) or self._array_name(array)
            handle = self._lift_weight(Weight.of(array), name)
        elif like is not None and (number := as_number(operand, like)) is not None:
            return self._lift_weight(Weight.of(number), None)
        else:
            raise TypeError(
                f"{operand!r} is no operand; use a handle, a state, a weight or an array"
            )
        self._kept.append(operand)
        self._lifted[id(operand)] = handle
        return handle

    def _lift_state(self, operand: State) -> Handle:
        name = self._names.get(id(operand))
        if name is None:
            raise ValueError(
                f"{operand} is not held by the graph: make it in __init__ and keep it in an "
                "attribute without a leading underscore, whose path is its name"
            )
        self.states[name] = operand
        return Handle(self, name, operand.shape, operand.dtype, Role.STATE)

    def _lift_weight(self, weight: Weight, name: str | None) -> Handle:
        if name is not None:
            self._paths.add(name)
        else:
            # Named by its contents, so that all versions of a graph share one copy.
            array = weight.load()
            content = hashlib.sha256(array.tobytes())
            content.update(repr((array.shape, array.dtype.name)).encode())
            name = f"constant.{content.hexdigest()[:12]}"
        self.weights[name] = weight
        return Handle(self, name, weight.shape, weight.dtype, Role.WEIGHT)

    def _array_name(self, array: Array) -> str | None:
        """A contiguous part of an array that the graph holds is named by that one's path."""
        for name, owner in self._parts.items():
            if not isinstance(owner, np.ndarray) or not owner.flags.c_contiguous:
                continue
            offset, rest = divmod(array.ctypes.data - owner.ctypes.data, owner.itemsize)
            inside = not rest and offset >= 0 and offset + array.size <= owner.size
            if inside and array.flags.c_contiguous and array.dtype == owner.dtype:
                shape = "x".join(map(str, array.shape))
                return f"{name}[{offset}:{shape}]"
        return None

    def _new_name(self, stem: str) -> str:
        """``stem``, with a number where a step or a result has that name already."""
        name = stem
        while name in self._taken:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{self._counts[stem]}"
        self._taken.add(name)
        return name

    def _step_name(self, op: Op, handles: Sequence[Handle]) -> str:
        """The path of the weight that a step uses; without one, what it computes, in the scope of
        the last weight or state used.
        """
        bases = [handle.base for handle in handles]
        held = [base for base in bases if base.role is Role.WEIGHT and base.name in self._paths]
        kept = [base for base in bases if base.role is Role.STATE]
        path = ""
        for base in held[:1] or kept[-1:]:
            path = base.name.removesuffix(".weight")
            self._scope = path.rpartition(".")[0]
        if held:
            return self._new_name(path)
        return self._new_name(f"{self._scope}.{op.stem}" if self._scope else op.stem)

    def call(self, op: str, *operands: Any, **attributes: Any) -> Any:
        """Record a step of the operator of that name."""
        return {**OPERATORS, **STANDARD}[op].step(*operands, **attributes)

    def record(
        self, op: Op, operands: Sequence[Operand], tunables: Mapping[str, int]
    ) -> tuple[Handle, ...]:
        """Add a step whose operands are lifted and checked; returns its new outputs."""
        handles = [operand for operand in operands if isinstance(operand, Handle)]
        name = self._step_name(op, handles)
        specs = op.infer([_spec(operand) for operand in operands])
        outputs = tuple(
            Handle(
                self,
                name if output == op.outputs[0] else self._new_name(f"{name}.{output}"),
                shape,
                dtype,
                Role.INTERMEDIATE,
                valid=op.output_bounds(output, operands, shape),
            )
            for output, (shape, dtype) in zip(op.outputs, specs, strict=True)
        )
        self.steps.append(Step(op, name, tuple(operands), outputs, dict(tunables)))
        return outputs

    def write(self, source: Any, destination: Handle) -> None:
        """Record ``destination[...] = source``, the destination being a state or a part of one.

        Raises:
            TypeError: the destination is no state, or the dtypes differ.
            ValueError: the shapes differ, or the bounds do.
        """
        if current_trace("a write") is not self:
            raise ValueError(
                f"{destination.name} belongs to another trace; a body keeps no handles"
            )
        if destination.base.role is not Role.STATE:
            raise TypeError(
                f"{destination.name} can't be written: only a state can, and its base is the "
                f"{destination.base.role.value} {destination.base.name}"
            )
        handle = self.lift(source, like=destination.dtype)
        if handle.dtype != destination.dtype:
            raise TypeError(
                f"{destination.name} is {destination.dtype.name}; a {handle.dtype.name} source "
                "can't be written to it"
            )
        if handle.shape != destination.shape and handle.shape != ():
            raise ValueError(
                f"{destination.name} is {destination.shape}; the source {handle.name} is "
                f"{handle.shape}, reshape it"
            )
        self._check_write_bounds(handle, destination)
        copy = OPERATORS["Copy"]()
        name = self._step_name(copy, (handle, destination))
        self.steps.append(Step(copy, name, (handle,), (destination,)))

    def _check_write_bounds(self, source: Handle, destination: Handle) -> None:
        for axis, rows in source.valid.items():
            if destination.valid.get(axis, rows) != rows:
                raise ValueError(
                    f"{destination.name} is bounded by {destination.valid[axis]} along axis "
                    f"{axis}, the source {source.name} by {rows}"
                )
        bounded = {**destination.valid, **source.valid}
        if len(bounded) > 1:
            raise ValueError(
                f"{destination.name}: a write is bounded along one axis at the most, "
                f"not along {sorted(bounded)}"
            )


def _spec(operand: Operand) -> Spec | None:
    if operand is None:
        return None
    if isinstance(operand, Handle):
        return Spec(operand.shape, operand.dtype)
    return Spec((), INT32)
