"""Designs for tests, and their results by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from exactness import hold
from hypothesis import strategies as st

from onnx_iron.dtypes import BFLOAT16, INT32, Array
from onnx_iron.kernels.designs import Design, Refusal, Target, design_for, maker_of
from onnx_iron.kernels.designs.design import (
    Access,
)
from onnx_iron.kernels.designs.interpreter import evaluate
from onnx_iron.operators import OPERATORS
from onnx_iron.operators.arithmetic import Add, Sub
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.base import Kind
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.gemm import GEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.narrow import Narrow
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.slice_scatter import SliceScatter

DESIGNED = sorted(name for name, op in OPERATORS.items() if maker_of(op))
devices = st.sampled_from(list(Target))
seeds = st.integers(0, 1 << 16)


def numbers(seed: int, *shape: int, scale: float = 1.0) -> Array:
    made = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return np.asarray(made.astype(BFLOAT16))


def word(value: int) -> Array:
    return np.array(value, INT32)


def made(
    op: Any, inputs: Mapping[str, Array], device: Target, constants: tuple[str, ...] = ()
) -> Design | Refusal:
    specs = [
        (inputs[d.name].shape, inputs[d.name].dtype) if d.name in inputs else None
        for d in op.inputs
    ]
    return design_for(op, specs, device, {name: inputs[name] for name in constants})


def interpreted(
    op: Any,
    inputs: Mapping[str, Array],
    device: Target,
    values: Mapping[str, int] | None = None,
    constants: tuple[str, ...] = (),
) -> dict[str, Array]:
    """The outputs; the same bits whatever the tiles and outputs held before."""
    design = made(op, inputs, device, constants)
    assert isinstance(design, Design), design
    given = {
        b.name: inputs["x" if b.access is Access.UPDATE else b.name]
        for b in design.buffers
        if b.access is not Access.WRITE
    }
    results = [evaluate(design, given, values, poison=poison) for poison in (0xFF, 0x3C)]
    for name, result in results[0].items():
        assert (result.view(np.uint16) == results[1][name].view(np.uint16)).all(), name
    return results[0]


def held(
    op: Any,
    inputs: Mapping[str, Array],
    device: Target,
    values: Mapping[str, int] | None = None,
    constants: tuple[str, ...] = (),
) -> None:
    """Interpret, and hold the outputs to the oracle."""
    results = interpreted(op, inputs, device, values, constants)
    operands: list[Any] = [
        int(inputs[d.name]) if d.kind is Kind.SCALAR and d.name in inputs else inputs.get(d.name)
        for d in op.inputs
    ]
    hold(op, tuple(results[name] for name in op.outputs), *operands)


def ulps(y: Array, reference: Array) -> int:
    def places(x: Array) -> Array:
        bits = x.view(np.uint16).astype(np.int64)
        return np.where(bits & 0x8000, -(bits & 0x7FFF), bits & 0x7FFF)

    return int(np.abs(places(y) - places(reference)).max(initial=0))


def whole_design() -> Design:
    design = made(SiLU(), {"x": numbers(1, 8, 2048)}, Target.NPU2)
    assert isinstance(design, Design)
    return design


LOWERED: list[tuple[Any, dict[str, tuple[int, ...]], dict[str, int]]] = [
    (Add(), {"a": (1, 330), "b": (1, 330)}, {}),
    (Sub(), {"a": (37, 4096), "b": (4096,)}, {}),
    (RMSNorm(), {"x": (37, 2048), "weight": (2048,)}, {}),
    (RoPE(), {"x": (117, 64), "angles": (13, 64)}, {}),
    (
        CausalConv1d(),
        {
            "x": (2, 37, 330),
            "taps": (4, 330),
            "state": (2, 3, 330),
            "bias": (330,),
            "rows": (),
        },
        {},
    ),
    (GEMV(), {"weight": (1000, 576), "x": (576,)}, {}),
    (GEMM(b_col_maj=True), {"a": (100, 576), "b": (1000, 576)}, {}),
    (
        Attention(is_causal=True),
        {"query": (1, 9, 64), "key": (500, 3, 64), "value": (500, 3, 64), "position": ()},
        {},
    ),
    (
        Attention(is_causal=True),
        {"query": (37, 10, 64), "key": (500, 5, 64), "value": (500, 5, 64), "position": ()},
        {},
    ),
    (Copy(), {"x": (64, 2048)}, {}),
    (Narrow(length=4), {"x": (9, 8), "start": (), "rows": ()}, {"start": 7, "rows": 2}),
    (SliceScatter(), {"x": (9, 8), "src": (4, 8), "start": ()}, {"start": 3}),
]
lowered = pytest.mark.parametrize(
    ("op", "shapes", "values"), LOWERED, ids=[op.name for op, *_ in LOWERED]
)


def dtype_of(kind: Kind) -> Any:
    """What an operand of a kind is in a design's tests."""
    if kind in (Kind.SCALAR, Kind.INDEX):
        return np.dtype(INT32)
    return np.dtype(bool) if kind is Kind.BOOL else np.dtype(BFLOAT16)


def design_of(op: Any, shapes: Mapping[str, tuple[int, ...]], device: Target) -> Design:
    specs = [(shapes[d.name], dtype_of(d.kind)) if d.name in shapes else None for d in op.inputs]
    design = design_for(op, specs, device)
    assert isinstance(design, Design), design
    return design


def walked(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The elements that a walk comes to, in order."""
    places = np.array([offset])
    for size, stride in zip(sizes, strides, strict=True):
        places = (places[:, None] + np.arange(size) * stride).reshape(-1)
    return places
