"""Each operator's design on an NPU against the operator's reference.

In ``chroot.py run`` the NPU is the simulated one. ``pytest tests/npu/test_on_device.py --npu`` runs
the same on this machine's NPU, and compiles the designs for it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from design_compiler import SIMULATED

from onnx_iron.dtypes import BFLOAT16, INT32, Array
from onnx_iron.kernels.designs import Design, Target, design_for, maker_of
from onnx_iron.kernels.designs.design import Access
from onnx_iron.operators import OPERATORS
from onnx_iron.provider.devices.npu import artifacts, toolchain
from onnx_iron.provider.devices.npu.xrt import Device, open_device

# The kernels promise two roundings to bfloat16, relative to the largest term of a sum.
RELATIVE, ABSOLUTE = 2.0**-7, 2.0**-6


@dataclass(frozen=True)
class Vector:
    """An operator with its operands' shapes, and what its attributes and per-call values are."""

    op: str
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = ["x".join(map(str, shape)) for shape in self.shapes.values()]
        return "-".join([self.op, *parts, *map(str, self.attributes.values())])


# Sizes of LFM2-1.2B and Llama-3.2-1B where they are quick, small ones elsewhere.
VECTORS = [
    Vector("Add", {"a": (16, 2048), "b": (16, 2048)}),
    Vector("Sub", {"a": (3, 256), "b": (3, 256)}),
    Vector("Mul", {"a": (16, 2048), "b": (2048,)}),
    Vector("Div", {"a": (4, 512), "b": (4, 512)}),
    Vector("SiLU", {"x": (4, 2048)}),
    Vector("GELU", {"x": (4, 2048)}),
    Vector("GELU", {"x": (4, 2048)}, {"approximate": "tanh"}),
    Vector("Softmax", {"x": (8, 256)}),
    Vector("RMSNorm", {"x": (16, 2048), "weight": (2048,)}, {"epsilon": 1e-5}),
    Vector("RMSNorm", {"x": (5, 64)}),
    Vector("LayerNorm", {"x": (4, 768), "weight": (768,)}),
    Vector("RoPE", {"x": (64, 64), "angles": (16, 64)}),
    Vector("RoPE", {"x": (8, 64), "angles": (1, 64)}, {"interleaved": 1}),
    Vector("GEMV", {"weight": (2048, 2048), "x": (1, 2048)}),
    Vector("GEMV", {"weight": (34, 64), "x": (64,)}),
    Vector("GEMM", {"a": (16, 256), "b": (192, 256)}, {"b_col_maj": 1}),
    Vector("GEMM", {"a": (20, 64), "b": (64, 96)}),
    Vector("ProjectionGEMM", {"a": (16, 128), "b": (64, 128)}, {"b_col_maj": 1}),
    Vector(
        "ProjectionGEMM", {"a": (16, 128), "b": (64, 128)}, {"b_col_maj": 1, "epilogue": "silu"}
    ),
    Vector("CausalConv1d", {"x": (16, 2048), "taps": (3, 2048), "state": (2, 2048)}),
    Vector(
        "CausalConv1d",
        {"x": (16, 256), "taps": (4, 256), "state": (3, 256), "bias": (256,), "rows": ()},
        {"activation": "silu"},
        {"rows": 9},
    ),
    Vector("CausalConv1d", {"x": (1, 2048), "taps": (3, 2048), "state": (2, 2048)}),
    Vector(
        "Attention",
        {"query": (4, 8, 64), "key": (96, 2, 64), "value": (96, 2, 64), "position": ()},
        {"is_causal": 1},
        {"position": 40},
    ),
    Vector(
        "Attention",
        {"query": (1, 4, 64), "key": (50, 4, 64), "value": (50, 4, 64), "kv_rows": ()},
        {},
        {"kv_rows": 23},
    ),
    Vector("Embedding", {"weight": (100, 256), "ids": (4,)}),
    Vector("Narrow", {"x": (40, 64), "start": ()}, {"axis": 0, "length": 8}, {"start": 21}),
    Vector(
        "SliceScatter", {"x": (40, 64), "src": (8, 64), "start": ()}, {"axis": 0}, {"start": 32}
    ),
    Vector("Copy", {"x": (16, 512)}),
]


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Device:
    if not SIMULATED and not request.config.getoption("--npu"):
        pytest.skip("needs an NPU: --npu takes this machine's, chroot.py run has a simulated one")
    return open_device()


def operands(vector: Vector) -> dict[str, Array]:
    """The inputs by name; per-call values as they are given."""
    generator = np.random.default_rng(7)
    made: dict[str, Array] = {}
    for name, shape in vector.shapes.items():
        if name == "ids":
            made[name] = np.array([3, 99, 0, 50], INT32)
        elif name in vector.values:
            made[name] = np.array(vector.values[name], INT32)
        else:
            made[name] = generator.standard_normal(shape).astype(BFLOAT16)
    if vector.op == "Div":
        made["b"] = (1 + np.abs(made["b"].astype(np.float32))).astype(BFLOAT16)
    return made


def run_once(device: Device, design: Design, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Run a design on the NPU: the contents of its outputs and states by name."""
    made = artifacts.artifact(design, toolchain.design_compiler())
    if not made.built:
        made.compiler.build(made)
    values = {}
    for value in design.values:
        name, _, rest = value.name.partition("[")
        values[value.name] = int(arrays[name].reshape(-1)[int(rest.rstrip("]") or 0)])
    buffers = []
    for buffer in design.buffers:
        room = device.buffer(buffer.size * buffer.item_bytes)
        room.bytes[:] = 0xFF
        if buffer.access is not Access.WRITE:
            # SliceScatter's y holds x before.
            content = arrays["x" if buffer.access is Access.UPDATE else buffer.name]
            room.bytes[:] = content.reshape(-1).view(np.uint8)
        room.to_device()
        buffers.append(room)
    with device.context(artifacts.image([made], device.target)) as context:
        name = artifacts.kernel_name(made)
        runs = context.run_list()
        instructions = context.instructions(name, made.alone(values), shared=False)
        runs.add(context.kernel(name), instructions, [buffer.part() for buffer in buffers])
        runs.run(10000)
    results = {}
    for buffer, room in zip(design.buffers, buffers, strict=True):
        if buffer.access is not Access.READ:
            room.from_device()
            results[buffer.name] = room.bytes.view(BFLOAT16).reshape(buffer.shape).copy()
    return results


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_an_operator_on_the_npu_equals_its_reference(device: Device, vector: Vector) -> None:
    op = OPERATORS[vector.op].from_attributes(vector.attributes)
    arrays = operands(vector)
    given = [arrays.get(slot.name) for slot in op.inputs]
    while given and given[-1] is None:
        given.pop()
    specs = [None if array is None else (array.shape, array.dtype) for array in given]
    design = design_for(op, specs, Target(device.target.name))
    assert isinstance(design, Design), design
    results = run_once(device, design, arrays)
    read = [int(a) if a is not None and a.dtype == INT32 and not a.ndim else a for a in given]
    expected = op.reference(*read)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for name, wanted in zip(op.outputs, expected, strict=True):
        found = results[name].astype(np.float32).reshape(wanted.shape)
        scale = np.sqrt(arrays["x"].size) if vector.op == "GEMV" else 1.0
        np.testing.assert_allclose(
            found, wanted.astype(np.float32), rtol=RELATIVE, atol=ABSOLUTE * max(1.0, scale / 8)
        )


def test_every_operator_with_a_design_is_here() -> None:
    assert {vector.op for vector in VECTORS} == {
        name for name, op in OPERATORS.items() if maker_of(op)
    }
