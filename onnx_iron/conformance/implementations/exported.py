"""Cases as ONNX models, and arrays as they are bound to onnxruntime."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from onnx_iron.conformance.case import Call, Case
from onnx_iron.dtypes import INT32, Array, DType, Shape, Spec, as_dtype, onnx_type
from onnx_iron.export import export


@dataclass(frozen=True)
class Exported:
    """A case's model, its weights inside, nothing converted at its border.

    Attributes:
        inputs: shapes and dtypes, by name, in order.
        outputs: the same.
        states: for each state read the output that replaces it, or None.
        updated: for each input that a call may overwrite with an output, that output: states, and
            where the graph is an operator alone, what the operator updates.
    """

    model: onnx.ModelProto
    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    states: Mapping[str, str | None]
    updated: Mapping[str, str]

    def feeds(self, call: Call) -> dict[str, Array]:
        """A call's arrays and numbers by input, without the states."""
        return {
            name: np.array(call.values[name], INT32) if name in call.values else call.inputs[name]
            for name in self.inputs
            if name not in self.states
        }

    def empty_states(self) -> dict[str, Array]:
        """Zeros for each state that is read, by its input."""
        return {past: np.zeros(*self.inputs[past]) for past in self.states}


@functools.cache
def exported(case: Case, dialect: str = "iron") -> Exported:
    """Export a case."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(case.trace, path, io_dtype=None, state_dtype=None, dialect=dialect)
        model = onnx.load(path)
    inputs, outputs = _specs(model.graph.input), _specs(model.graph.output)
    names = [name for name in case.trace.states if f"past.{name}" in inputs]
    states = {f"past.{n}": p if (p := f"present.{n}") in outputs else None for n in names}
    updated = {past: present for past, present in states.items() if present is not None}
    if len(case.trace.steps) == 1 and not case.trace.states:
        pairs = case.trace.steps[0].op.updates
        updated = {x: y for x, y in pairs if y in outputs and inputs.get(x) == outputs[y]}
    return Exported(model, inputs, outputs, states, updated)


def _specs(infos: Any) -> dict[str, Spec]:
    return {
        info.name: Spec(
            tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim),
            as_dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)),
        )
        for info in infos
    }


def read_states(kept: Mapping[str, Array]) -> dict[str, Array]:
    """States by their inputs' names as results: a state that is never written stays."""
    return {f"present.{past.removeprefix('past.')}": array for past, array in kept.items()}


def bind(binding: onnxruntime.IOBinding, direction: str, name: str, array: Array) -> None:
    """Bind an array's own memory; bfloat16 too, which ``run`` does not take."""
    method = getattr(binding, f"bind_{direction}")
    method(name, "cpu", 0, onnx_type(array.dtype), list(array.shape), array.ctypes.data)


def poisoned(shape: Shape, dtype: DType) -> Array:
    """An array that no kernel has written: its bytes are all ones, NaN for the floats."""
    made: Array = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8)[...] = 0xFF
    return made
