"""The designs, interpreted on the host, against the operators' float64 oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from design_cases import (
    DESIGNED,
    devices,
    held,
    interpreted,
    made,
    numbers,
    seeds,
    ulps,
    word,
)
from exactness import variants
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.dtypes import BFLOAT16, INT32, Array
from onnx_iron.kernels.aie.library import aligned, aligned_copy, load
from onnx_iron.kernels.designs import Design, Refusal, Target
from onnx_iron.kernels.designs.interpreter import run
from onnx_iron.operators import OPERATORS
from onnx_iron.operators.arithmetic import Add
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.base import In, Kind, Op
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.embedding import Embedding
from onnx_iron.operators.gemm import GEMM, Epilogue, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.narrow import Narrow
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.slice_scatter import SliceScatter
from onnx_iron.operators.softmax import Softmax

# -- each operator, on any shape that it takes --------------------------------------------------


@given(devices, st.integers(16, 3000), st.integers(1, 3), seeds)
@settings(max_examples=75)
def test_flat_elementwise(device: Target, n: int, rows: int, seed: int) -> None:
    n += n % 2
    a, b = numbers(seed, rows, n), numbers(seed + 1, rows, n)
    if rows * n < device.lanes:
        return
    for op in variants(2):
        held(op, {"a": a, "b": b}, device)
    for op in variants(1):
        held(op, {"x": a}, device)


@given(devices, st.integers(1, 80), st.integers(1, 12), st.booleans(), seeds)
@settings(max_examples=75)
def test_elementwise_with_a_row(
    device: Target, rows: int, vectors: int, row_first: bool, seed: int
) -> None:
    whole, row = numbers(seed, rows, 32 * vectors), numbers(seed, 32 * vectors)
    inputs = {"a": row, "b": whole} if row_first else {"a": whole, "b": row}
    for op in variants(2):
        held(op, inputs, device)


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize("first", [False, True])
def test_elementwise_with_a_number_that_is_known(device: Target, first: bool) -> None:
    number = np.array(0.375, BFLOAT16)
    for op in variants(2):
        names = ("b", "a") if first else ("a", "b")
        inputs = dict(zip(names, (numbers(3, 5, 66), number), strict=True))
        held(op, inputs, device, constants=(names[1],))


@given(devices, st.integers(1, 40), st.integers(1, 40), st.booleans(), seeds)
@settings(max_examples=75)
def test_rows(device: Target, rows: int, vectors: int, weighted: bool, seed: int) -> None:
    inputs = {"x": numbers(seed, rows, 32 * vectors)}
    held(Softmax(), inputs, device)
    if weighted:
        inputs["weight"] = numbers(seed, 32 * vectors)
    for op in (RMSNorm(), LayerNorm(epsilon=1e-3)):
        held(op, inputs, device)


@given(devices, st.integers(1, 20), st.integers(1, 20), st.integers(1, 4), st.booleans(), seeds)
@settings(max_examples=75)
def test_rope(
    device: Target, angles: int, shared: int, width: int, interleaved: bool, seed: int
) -> None:
    op = RoPE(interleaved=interleaved)
    inputs = {
        "x": numbers(seed, angles * shared, 32 * width),
        "angles": numbers(seed, angles, 32 * width),
    }
    held(op, inputs, device)


@given(
    devices,
    st.integers(1, 40),
    st.integers(16, 160),
    st.integers(2, 8),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
    st.sampled_from(["none", "silu"]),
    st.data(),
    seeds,
)
@settings(max_examples=120)
def test_causal_conv1d(
    device: Target,
    length: int,
    pairs: int,
    taps: int,
    batch: int | None,
    biased: bool,
    activation: str,
    data: st.DataObject,
    seed: int,
) -> None:
    lead, channels = () if batch is None else (batch,), 2 * pairs
    inputs = {
        "x": numbers(seed, *lead, length, channels),
        "taps": numbers(seed + 1, taps, channels),
        "state": numbers(seed + 2, *lead, taps - 1, channels),
    }
    if biased:
        inputs["bias"] = numbers(seed, channels)
    rows = data.draw(st.none() | st.integers(0, length))
    if rows is not None:
        inputs["rows"] = word(rows)
    op = CausalConv1d(activation=activation)
    held(op, inputs, device)


@given(devices, st.integers(1, 300), st.integers(1, 60), seeds)
@settings(max_examples=75)
def test_gemv(device: Target, pairs: int, steps: int, seed: int) -> None:
    n, k = 2 * pairs, 32 * steps
    inputs = {"weight": numbers(seed, n, k, scale=k**-0.5), "x": numbers(seed, k)}
    held(GEMV(), inputs, device)


@given(
    devices,
    st.integers(4, 150),
    st.integers(4, 150),
    st.integers(1, 20),
    st.booleans(),
    st.sampled_from(Epilogue),
    seeds,
)
@settings(max_examples=75)
def test_gemm(
    device: Target,
    m: int,
    pairs: int,
    eighths: int,
    b_col_maj: bool,
    epilogue: Epilogue,
    seed: int,
) -> None:
    n, k = 2 * pairs, 8 * eighths
    shape = (n, k) if b_col_maj else (k, n)
    inputs = {"a": numbers(seed, m, k, scale=k**-0.5), "b": numbers(seed, *shape)}
    op = ProjectionGEMM(b_col_maj=b_col_maj, epilogue_modes=(epilogue,))
    held(op, inputs, device)
    if epilogue is Epilogue.NONE:
        held(GEMM(b_col_maj=b_col_maj), inputs, device)


@given(
    devices,
    st.integers(1, 11) | st.sampled_from([12, 16, 33]),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 150),
    st.booleans(),
    st.data(),
    seeds,
)
@settings(max_examples=90)
def test_attention(
    device: Target,
    length: int,
    heads: int,
    groups: int,
    entries: int,
    causal: bool,
    data: st.DataObject,
    seed: int,
) -> None:
    inputs = {
        "query": numbers(seed, length, heads * groups, 64),
        "key": numbers(seed + 1, entries, groups, 64),
        "value": numbers(seed + 2, entries, groups, 32),
    }
    for name, low, high in (("position", 0, entries - 1), ("kv_rows", 1, entries)):
        drawn = data.draw(st.none() | st.integers(low, high))
        if drawn is not None:
            inputs[name] = word(drawn)
    op = Attention(is_causal=causal)
    held(op, inputs, device)


@given(devices, st.integers(1, 40000), seeds)
@settings(max_examples=45)
def test_copy(device: Target, pairs: int, seed: int) -> None:
    x = numbers(seed, 2 * pairs)
    assert ulps(interpreted(Copy(), {"x": x}, device)["y"], x) == 0


@given(
    devices,
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(1, 64),
    st.booleans(),
    st.data(),
    seeds,
)
@settings(max_examples=120)
def test_narrow_and_slice_scatter_at_any_place(
    device: Target,
    outer: int,
    size: int,
    pairs: int,
    bounded: bool,
    data: st.DataObject,
    seed: int,
) -> None:
    length = data.draw(st.integers(1, size))
    rows = data.draw(st.integers(0, length)) if bounded else length
    start = data.draw(st.integers(0, size - rows))
    x = numbers(seed, outer, size, 2 * pairs)
    values = {"start": start} | ({"rows": rows} if bounded else {})
    words = {name: word(value) for name, value in values.items()}

    narrow = Narrow(axis=1, length=length)
    inputs = {"x": x, **words}
    held(narrow, inputs, device, values)

    scatter = SliceScatter(axis=1)
    inputs = {"x": x, "src": numbers(seed + 1, outer, length, 2 * pairs), **words}
    held(scatter, inputs, device, values)


@given(devices, st.lists(st.integers(0, 49), min_size=1, max_size=9), seeds)
@settings(max_examples=30)
def test_embedding(device: Target, ids: list[int], seed: int) -> None:
    inputs = {"weight": numbers(seed, 50, 64), "ids": np.array(ids, INT32)}
    values = {f"ids[{i}]": n for i, n in enumerate(ids)}
    y = interpreted(Embedding(), inputs, device, values)["y"]
    assert ulps(y, inputs["weight"][ids]) == 0


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize("name", DESIGNED)
def test_every_operator_has_a_design_and_its_cases_run_or_are_refused(
    name: str, device: Target
) -> None:
    op_class = OPERATORS[name]
    for case in op_class.cases:
        op = op_class(**case.attributes)
        ids = {"ids": np.zeros(case.shapes["ids"], INT32)} if "ids" in case.shapes else {}
        masks = {d.name for d in op.inputs if d.kind is Kind.BOOL}
        inputs = {
            k: numbers(1, *shape) > 0 if k in masks else numbers(1, *shape)
            for k, shape in case.shapes.items()
        } | ids
        inputs |= {k: word(v) for k, v in case.values.items()}
        design = made(op, inputs, device)
        if isinstance(design, Refusal):
            assert design.reason.startswith(op.stem)
            continue
        values = {v.name: case.values.get(v.name, 0) for v in design.values}
        held(op, inputs, device, values)


def test_an_operator_without_a_design_is_refused_by_name() -> None:
    class _Doubled(Op):
        """``2 * x``: a body alone."""

        x = In()

        def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
            return x

    _Doubled.file = "doubled"  # as if it were the module of that name
    refusal = made(_Doubled(), {"x": numbers(1, 4, 64)}, Target.NPU2)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "_Doubled has no design: there is no kernels/designs/doubled.py"


# -- a design equals its kernel on the whole array ----------------------------------------------


@pytest.mark.parametrize("device", Target)
def test_tiles_give_the_bits_of_the_kernel_on_the_whole_array(device: Target) -> None:
    kernels, x, weight = load(device.generation), numbers(5, 37, 96), numbers(6, 96)
    whole = aligned(x.shape)
    inputs = {"x": x, "weight": weight}
    kernels.call(
        "rms_norm_weighted_bf16", aligned_copy(x), aligned_copy(weight), whole, 37, 96, 1e-5
    )
    y = interpreted(RMSNorm(), inputs, device)["y"]
    assert (y.view(np.uint16) == whole.view(np.uint16)).all()
    kernels.call("softmax_bf16", aligned_copy(x), whole, 37, 96)
    y = interpreted(Softmax(), {"x": x}, device)["y"]
    assert (y.view(np.uint16) == whole.view(np.uint16)).all()


@pytest.mark.parametrize("device", Target)
def test_a_chunked_sequence_gives_the_bits_of_the_whole(device: Target) -> None:
    x, taps, op = numbers(1, 23, 96), numbers(2, 4, 96), CausalConv1d(activation="silu")
    state = np.zeros((3, 96), BFLOAT16)
    whole = interpreted(op, {"x": x, "taps": taps, "state": state}, device)
    carried, parts = state, []
    for first, rows in ((0, 5), (5, 1), (6, 2), (8, 15)):
        chunk = numbers(9, 15, 96)
        chunk[:rows] = x[first : first + rows]
        inputs = {"x": chunk, "taps": taps, "state": carried, "rows": word(rows)}
        results = interpreted(op, inputs, device)
        carried = results["new_state"]
        parts.append(results["y"][:rows])
    assert ulps(np.concatenate(parts), whole["y"]) == 0
    assert ulps(carried, whole["new_state"]) == 0


@pytest.mark.parametrize("device", Target)
def test_in_place_pairs_may_be_one_buffer(device: Target) -> None:
    cases: list[tuple[Any, dict[str, Array]]] = [
        (Add(), {"a": numbers(1, 8, 64), "b": numbers(2, 8, 64)}),
        (RMSNorm(), {"x": numbers(1, 8, 64)}),
        (RoPE(), {"x": numbers(1, 8, 64), "angles": numbers(2, 4, 64)}),
        (
            CausalConv1d(),
            {"x": numbers(1, 8, 64), "taps": numbers(2, 3, 64), "state": numbers(3, 2, 64)},
        ),
    ]
    for op, inputs in cases:
        design = made(op, inputs, device)
        assert isinstance(design, Design)
        assert design.in_place
        apart = interpreted(op, inputs, device)
        for source, destination in design.in_place:
            arrays = {b.name: np.zeros(b.shape, BFLOAT16) for b in design.buffers}
            arrays |= {name: array.copy() for name, array in inputs.items()}
            arrays[destination] = arrays[source]
            run(design, arrays)
            assert ulps(arrays[destination], apart[destination]) == 0


def test_blocks_that_overlap_are_not_in_place() -> None:
    # No whole number of the blocks that eight columns take.
    conv = {"x": numbers(1, 8, 66), "taps": numbers(2, 3, 66), "state": numbers(3, 2, 66)}
    cases: list[tuple[Any, dict[str, Array]]] = [
        (Add(), {"a": numbers(1, 1, 330), "b": numbers(2, 1, 330)}),
        (RMSNorm(), {"x": numbers(1, 37, 64)}),
        (RoPE(), {"x": numbers(1, 37, 64), "angles": numbers(2, 1, 64)}),
        (CausalConv1d(), conv),
    ]
    for op, inputs in cases:
        design = made(op, inputs, Target.NPU2)
        assert isinstance(design, Design)
        assert design.in_place == ()
