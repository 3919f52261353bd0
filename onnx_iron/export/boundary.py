"""A model's inputs and outputs: those of the graph, per-call values, and states."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnx_iron.dtypes import FLOATS, INT32, Spec, onnx_type
from onnx_iron.export.metadata import used_values
from onnx_iron.export.nodes import Nodes
from onnx_iron.export.rewind import by_position
from onnx_iron.export.tensors import Tensors
from onnx_iron.graph.handle import Role
from onnx_iron.graph.parts import State
from onnx_iron.graph.trace import Trace


class Boundary:
    """What a model's caller gives and gets, with casts to and from the graph's dtypes.

    Args:
        trace: what is exported.
        nodes: where nodes are added.
        tensors: learns the values of inputs and states, and tells those of outputs.
        io_dtype: the dtype of float inputs and outputs, None to keep the graph's.
        state_dtype: the dtype of past and present states, None to keep the graph's.
    """

    def __init__(
        self,
        trace: Trace,
        nodes: Nodes,
        tensors: Tensors,
        io_dtype: np.dtype[Any] | None,
        state_dtype: np.dtype[Any] | None,
    ) -> None:
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._trace = trace
        self._nodes = nodes
        self._tensors = tensors
        self._io_dtype = io_dtype
        self._state_dtype = state_dtype
        self._written = _written_states(trace)

    def declare_inputs(self) -> None:
        """Add the inputs; before any step."""
        trace, tensors = self._trace, self._tensors
        # Names that a caller sees are theirs before any intermediate takes one.
        for name in (*trace.inputs, *trace.value_names, *trace.outputs):
            self._nodes.reserve(name)
        for name, handle in trace.inputs.items():
            outside = _outside(handle.dtype, self._io_dtype)
            self._input(name, outside, handle.shape)
            tensors.values[Role.INPUT, name] = self._nodes.cast(name, outside, handle.dtype)
        for name in used_values(trace):
            self._input(name, INT32, ())
        for name, state in trace.states.items():
            if state.scratch:
                tensors.versions[name] = self._zeros(name, state)
                continue
            outside = _outside(state.dtype, self._state_dtype)
            self._input(f"past.{name}", outside, state.shape)
            tensors.versions[name] = self._nodes.cast(f"past.{name}", outside, state.dtype)

    def _input(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._nodes.reserve(name)
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(dtype), shape))

    def _zeros(self, name: str, state: State) -> str:
        zero = helper.make_tensor(
            f"scratch.{name}.zero",
            onnx_type(state.dtype),
            [1],
            b"\0" * state.dtype.itemsize,
            raw=True,
        )
        shape = self._nodes.shape(state.shape)
        return self._nodes.node("ConstantOfShape", [shape], f"scratch.{name}", value=zero)

    def declare_outputs(self) -> None:
        """Add the outputs; after all steps.

        Raises:
            ValueError: two inputs or outputs have one name.
        """
        wanted = [
            (name, self._tensors.read(handle), handle.dtype, handle.shape, self._io_dtype)
            for name, handle in self._trace.outputs.items()
        ]
        wanted += [
            (
                f"present.{name}",
                self._tensors.new_state(name, Spec(state.shape, state.dtype)),
                state.dtype,
                state.shape,
                self._state_dtype,
            )
            for name, state in self._trace.states.items()
            if name in self._written
        ]
        made = {output for node in self._nodes.nodes for output in node.output}
        renamed: dict[str, str] = {}
        for name, value, dtype, shape, asked in wanted:
            outside = _outside(dtype, asked)
            if outside != dtype:
                self._nodes.add("Cast", [value], [name], name, {"to": onnx_type(outside)})
            elif value in made and value not in renamed:
                renamed[value] = name
            else:  # an input or a weight, or a value that is an output already
                self._nodes.add("Identity", [value], [name], name, {})
            self.outputs.append(helper.make_tensor_value_info(name, onnx_type(outside), shape))
        self._check_names()
        self._nodes.rename(renamed)

    def _check_names(self) -> None:
        taken: set[str] = set()
        for info in (*self.inputs, *self.outputs):
            if info.name in taken:
                raise ValueError(
                    f"export(): {info.name} is the name of a state's input or output and of "
                    "another input or output; rename that one"
                )
            taken.add(info.name)

    def states(self) -> list[dict[str, Any]]:
        """The states as the metadata describes them."""
        positional = by_position(self._trace)
        return [
            {
                "name": name,
                "input": f"past.{name}",
                "output": f"present.{name}" if name in self._written else None,
                "shape": list(state.shape),
                "dtype": _outside(state.dtype, self._state_dtype).name,
                "by_position": name in positional,
            }
            for name, state in self._trace.states.items()
            if not state.scratch
        ]


def _outside(inside: np.dtype[Any], wanted: np.dtype[Any] | None) -> np.dtype[Any]:
    return inside if wanted is None or inside not in FLOATS else wanted


def _written_states(trace: Trace) -> set[str]:
    """The states that a caller keeps and that the steps write."""
    return {
        handle.base.name
        for step in trace.steps
        for handle in step.outputs
        if handle.base.role is Role.STATE and not trace.states[handle.base.name].scratch
    }
