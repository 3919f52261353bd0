"""Nodes of operators that others export, as models of one node."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper
from provider_models import BF16, DTYPES, constant, iron, spec, stock

import onnx_iron

MICROSOFT = "com.microsoft"
Array = Any


@dataclass(frozen=True)
class Other:
    """A node: its inputs in order (None where omitted), its outputs, its attributes."""

    op: str
    inputs: tuple[Array | None, ...]
    outputs: tuple[str, ...] = ("y",)
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = MICROSOFT
    opset: int = 23
    constants: tuple[int, ...] = ()  # the inputs that are the model's own

    def __str__(self) -> str:
        shapes = " ".join("-" if x is None else "x".join(map(str, x.shape)) for x in self.inputs)
        return f"{self.domain or 'onnx'} {self.op} {shapes} {self.attributes}"

    def given(self, dtype: Any) -> dict[str, Array]:
        return {
            f"x{i}": x.astype(dtype) if x.dtype == np.float32 else x
            for i, x in enumerate(self.inputs)
            if x is not None and i not in self.constants
        }

    def model(self, dtype: Any) -> bytes:
        given = self.given(dtype)
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        node = helper.make_node(
            self.op, names, self.outputs, name="n", domain=self.domain, **self.attributes
        )
        own = [constant(f"x{i}", self.inputs[i]) for i in self.constants]
        graph = helper.make_graph(
            [node],
            "graph",
            [spec(name, array.shape, array.dtype) for name, array in given.items()],
            [
                helper.make_tensor_value_info(name, DTYPES[np.dtype(dtype)], None)
                for name in self.outputs
                if name
            ],
            own,
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=11)
        result: bytes = made.SerializeToString()
        return result


def tables(entries: int, half: int) -> tuple[Array, Array]:
    """Cosines and sines of angles, a row a position."""
    angles = np.outer(np.arange(entries), 10000.0 ** (-np.arange(half) / half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def run_bfloat16(session: ort.InferenceSession, given: dict[str, Array]) -> list[Array]:
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TensorProto.BFLOAT16)
        if array.dtype == BF16
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in given.items()
    }
    return [
        np.frombuffer(
            ctypes.string_at(made.data_ptr(), int(np.prod(made.shape())) * 2), BF16
        ).reshape(made.shape())
        for made in session.run_with_ort_values(None, values)
    ]


def assert_bfloat16_is_its_float32_rounded(case: Other) -> None:
    """Our provider's results are onnxruntime's float32 ones of the same numbers, rounded."""
    given = case.given(BF16)
    session = iron(case.model(BF16))
    assert onnx_iron.placement(session).complete
    wide = {n: a.astype(np.float32) if a.dtype == BF16 else a for n, a in given.items()}
    expected = stock(case.model(np.float32)).run(None, wide)
    for ours, theirs in zip(run_bfloat16(session, given), expected, strict=True):
        # What is between two steps, a turned head say, is rounded, and the result once more.
        np.testing.assert_allclose(ours.astype(np.float32), theirs, rtol=2**-6, atol=2**-6)
