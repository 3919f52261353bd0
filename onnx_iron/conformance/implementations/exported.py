"""Cases as ONNX models, and arrays as they are bound to onnxruntime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from onnx_iron.conformance.case import Call, Case
from onnx_iron.dtypes import BFLOAT16, INT32, Array, DType, Shape, as_dtype, onnx_type
from onnx_iron.export import export

Specs = dict[str, tuple[Shape, DType]]


@dataclass(frozen=True)
class Exported:
    """A case's model, its weights inside, nothing converted at its border.

    Attributes:
        inputs: shapes and dtypes, by name.
        outputs: the same.
        states: for each state read the output that replaces it, or None.
    """

    model: onnx.ModelProto
    inputs: Specs
    outputs: Specs
    states: Mapping[str, str | None]

    def feeds(self, call: Call) -> dict[str, Array]:
        """A call's arrays and numbers by input, without the states."""
        return {
            name: np.array(call.values[name], INT32) if name in call.values else call.inputs[name]
            for name in self.inputs
            if name not in self.states
        }


def exported(case: Case, dialect: str = "iron") -> Exported:
    """Export a case."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(case.trace, path, io_dtype=None, state_dtype=None, dialect=dialect)
        model = onnx.load(path)
    outputs = _specs(model.graph.output)
    pairs = {
        f"past.{name}": present if (present := f"present.{name}") in outputs else None
        for name in case.trace.states
    }
    inputs = _specs(model.graph.input)
    return Exported(model, inputs, outputs, {p: q for p, q in pairs.items() if p in inputs})


def _specs(infos: Any) -> Specs:
    return {
        info.name: (
            tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim),
            as_dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)),
        )
        for info in infos
    }


def bind(binding: onnxruntime.IOBinding, direction: str, name: str, array: Array) -> None:
    """Bind an array's own memory; bfloat16 too, which ``run`` does not take."""
    method = getattr(binding, f"bind_{direction}")
    method(name, "cpu", 0, onnx_type(array.dtype), list(array.shape), array.ctypes.data)


def poisoned(shape: Shape, dtype: DType) -> Array:
    """An array that no kernel has written: NaN, -1, or true."""
    made = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8)[...] = 1 if dtype == np.bool_ else 0xFF
    return made


__all__ = ["BFLOAT16", "Exported", "bind", "exported", "poisoned"]
