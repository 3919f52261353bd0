"""The designs: interpreted on the host they give what the operators' references give; what does not
fit a device is refused with a reason.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.dtypes import BFLOAT16, FLOAT32, INT32, Array
from onnx_iron.kernels.aie.build import kernel_source
from onnx_iron.kernels.aie.library import aligned, aligned_copy, load
from onnx_iron.kernels.designs import Design, Refusal, Target, design_for, maker_of
from onnx_iron.kernels.designs.check import checked, core_bytes
from onnx_iron.kernels.designs.design import (
    Access,
    Affine,
    Call,
    Direction,
    Index,
    Local,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.interpreter import DesignError, evaluate, run
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.kernels.designs.target import UnaddressableError, memory_pattern, shim_pattern
from onnx_iron.kernels.designs.tiling import Split, best_split
from onnx_iron.operators import OPERATORS
from onnx_iron.operators.arithmetic import Add, Div, Mul, Sub
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.base import In, Kind, Op
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.embedding import Embedding
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.gemm import GEMM, Epilogue, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.narrow import Narrow
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.slice_scatter import SliceScatter
from onnx_iron.operators.softmax import Softmax

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


def expected(op: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    operands: list[Any] = [
        int(inputs[d.name]) if d.kind is Kind.SCALAR and d.name in inputs else inputs.get(d.name)
        for d in op.inputs
    ]
    results = op.reference(*operands)
    return dict(zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True))


def ulps(y: Array, reference: Array) -> int:
    def places(x: Array) -> Array:
        bits = x.view(np.uint16).astype(np.int64)
        return np.where(bits & 0x8000, -(bits & 0x7FFF), bits & 0x7FFF)

    return int(np.abs(places(y) - places(reference)).max(initial=0))


def close(y: Array, reference: Array, absolute: float = 1e-5) -> bool:
    a, b = y.astype(np.float64), reference.astype(np.float64)
    return bool((np.abs(a - b) <= np.maximum(absolute, 2.0**-8 * (np.abs(a) + np.abs(b)))).all())


# -- each operator, on any shape that it takes --------------------------------------------------


@given(devices, st.integers(16, 3000), st.integers(1, 3), seeds)
@settings(max_examples=75)
def test_flat_elementwise(device: Target, n: int, rows: int, seed: int) -> None:
    n += n % 2
    a, b = numbers(seed, rows, n), numbers(seed + 1, rows, n)
    if rows * n < device.lanes:
        return
    for op, bound in ((Add(), 0), (Sub(), 0), (Mul(), 0), (Div(), 1)):
        inputs = {"a": a, "b": b}
        assert ulps(interpreted(op, inputs, device)["y"], op.reference(a, b)) <= bound
    for act in (SiLU(), GELU(), GELU(approximate="tanh")):
        assert ulps(interpreted(act, {"x": a}, device)["y"], act.reference(a)) <= 1


@given(devices, st.integers(1, 80), st.integers(1, 12), st.booleans(), seeds)
@settings(max_examples=75)
def test_elementwise_with_a_row(
    device: Target, rows: int, vectors: int, row_first: bool, seed: int
) -> None:
    whole, row = numbers(seed, rows, 32 * vectors), numbers(seed, 32 * vectors)
    inputs = {"a": row, "b": whole} if row_first else {"a": whole, "b": row}
    for op, bound in ((Add(), 0), (Sub(), 0), (Div(), 1)):
        y = interpreted(op, inputs, device)["y"]
        assert ulps(y, op.reference(inputs["a"], inputs["b"])) <= bound


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize("first", [False, True])
def test_elementwise_with_a_number_that_is_known(device: Target, first: bool) -> None:
    number = np.array(0.375, BFLOAT16)
    for op, bound in ((Add(), 0), (Sub(), 0), (Mul(), 0), (Div(), 1)):
        names = ("b", "a") if first else ("a", "b")
        inputs = dict(zip(names, (numbers(3, 5, 66), number), strict=True))
        y = interpreted(op, inputs, device, constants=(names[1],))["y"]
        assert ulps(y, op.reference(inputs["a"], inputs["b"])) <= bound


@given(devices, st.integers(1, 40), st.integers(1, 40), st.booleans(), seeds)
@settings(max_examples=75)
def test_rows(device: Target, rows: int, vectors: int, weighted: bool, seed: int) -> None:
    inputs = {"x": numbers(seed, rows, 32 * vectors)}
    y = interpreted(Softmax(), inputs, device)["y"]
    assert ulps(y, Softmax().reference(inputs["x"])) <= 1
    if weighted:
        inputs["weight"] = numbers(seed, 32 * vectors)
    for op in (RMSNorm(), LayerNorm(epsilon=1e-3)):
        assert close(interpreted(op, inputs, device)["y"], expected(op, inputs)["y"])


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
    assert ulps(interpreted(op, inputs, device)["y"], expected(op, inputs)["y"]) == 0


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
    results, reference = interpreted(op, inputs, device), expected(op, inputs)
    assert ulps(results["y"], reference["y"]) <= (activation == "silu")
    assert ulps(results["new_state"], reference["new_state"]) == 0


@given(devices, st.integers(8, 300), st.integers(1, 20), seeds)
@settings(max_examples=75)
def test_gemv(device: Target, pairs: int, steps: int, seed: int) -> None:
    n, k = 2 * pairs, 64 * steps
    inputs = {"weight": numbers(seed, n, k, scale=k**-0.5), "x": numbers(seed, k)}
    assert close(interpreted(GEMV(), inputs, device)["y"], expected(GEMV(), inputs)["y"])


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
    assert close(interpreted(op, inputs, device)["y"], expected(op, inputs)["y"])
    if epilogue is Epilogue.NONE:
        plain = interpreted(GEMM(b_col_maj=b_col_maj), inputs, device)["y"]
        assert close(plain, expected(op, inputs)["y"])


@given(
    devices,
    st.integers(1, 11),
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
    assert close(interpreted(op, inputs, device)["y"], expected(op, inputs)["y"], 1e-3)


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
    y = interpreted(narrow, inputs, device, values)["y"]
    assert ulps(y, expected(narrow, inputs)["y"]) == 0

    scatter = SliceScatter(axis=1)
    inputs = {"x": x, "src": numbers(seed + 1, outer, length, 2 * pairs), **words}
    y = interpreted(scatter, inputs, device, values)["y"]
    assert ulps(y, expected(scatter, inputs)["y"]) == 0


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
        inputs = {k: numbers(1, *shape) for k, shape in case.shapes.items()} | ids
        inputs |= {k: word(v) for k, v in case.values.items()}
        design = made(op, inputs, device)
        if isinstance(design, Refusal):
            assert design.reason.startswith(op.stem)
            continue
        values = {v.name: case.values.get(v.name, 0) for v in design.values}
        results = interpreted(op, inputs, device, values)
        for output, reference in expected(op, inputs).items():
            assert close(results[output], reference, 1e-3)


def test_an_operator_without_a_design_is_refused_by_name() -> None:
    class _Doubled(Op):
        """``2 * x``: a body alone."""

        file = "doubled"
        x = In()

        def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
            return x

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
    design = made(Add(), {"a": numbers(1, 1, 330), "b": numbers(2, 1, 330)}, Target.NPU2)
    assert isinstance(design, Design)
    assert design.in_place == ()


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shapes", "reason"),
    [
        (RMSNorm(), {"x": (3, 100)}, "rms_norm: row length 100 is no multiple of 32 lanes"),
        (Softmax(), {"x": (3, 16)}, "softmax: row length 16 is no multiple of 32 lanes"),
        (Add(), {"a": (5, 33), "b": (5, 33)}, "add: stream a has .* multiple of 4 bytes|4 bytes"),
        (Add(), {"a": (5, 1), "b": (1, 7)}, r"add: \(5, 1\) and \(1, 7\) are neither equal nor"),
        (Add(), {"a": (3, 8), "b": ()}, "b is one bfloat16, not known now, of 2 bytes"),
        (SiLU(), {"x": (30,)}, "30 elements are less than a vector of 32 lanes"),
        (RoPE(), {"x": (4, 48), "angles": (4, 48)}, "head_dim 48 is no multiple of 32"),
        (GEMV(), {"weight": (64, 100), "x": (100,)}, "gemv: K 100 is no multiple of 64"),
        (GEMV(), {"weight": (15, 64), "x": (64,)}, "15 rows; it takes an even number, 16 at"),
        (GEMM(), {"a": (3, 64), "b": (64, 64)}, "gemm: M 3 is less than a block of 4"),
        (GEMM(), {"a": (4, 36), "b": (36, 64)}, "K 36; N must be even and K a multiple of 8"),
        (
            Attention(),
            {"query": (1, 2, 48), "key": (9, 1, 48), "value": (9, 1, 48)},
            "attention: head_dim 48 is no multiple of 32 lanes",
        ),
        (
            CausalConv1d(),
            {"x": (4, 64), "taps": (1, 64), "state": (0, 64)},
            "1 taps; the kernel takes 2 to 8|without elements",
        ),
        (
            CausalConv1d(),
            {"x": (4, 8), "taps": (3, 8), "state": (2, 8)},
            "8 channels; it takes an even number, a vector of 32 lanes at the least",
        ),
        (Copy(), {"x": (5, 3)}, "copy: 15 elements of 2 bytes; a DMA moves 4 at a time"),
        (LayerNorm(), {"x": (2, 20480)}, "layer_norm: 83968 bytes of tiles, locals and stack, of"),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_a_refusal_says_why(op: Any, shapes: Mapping[str, tuple[int, ...]], reason: str) -> None:
    refusal = made(op, {k: numbers(1, *shape) for k, shape in shapes.items()}, Target.NPU2)
    assert isinstance(refusal, Refusal)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(refusal.reason)


def test_float32_is_refused() -> None:
    refusal = design_for(SiLU(), [((4, 64), FLOAT32)], Target.NPU1)
    assert refusal == Refusal("silu: x is float32; the kernels take bfloat16")


def test_shapes_that_the_operator_does_not_take_are_errors() -> None:
    with pytest.raises(ValueError, match=r"RMSNorm\.weight is"):
        design_for(RMSNorm(), [((4, 64), BFLOAT16), ((32,), BFLOAT16)], Target.NPU1)


# -- budgets and addresses ----------------------------------------------------------------------


def whole_design() -> Design:
    design = made(SiLU(), {"x": numbers(1, 8, 2048)}, Target.NPU2)
    assert isinstance(design, Design)
    return design


def test_a_design_over_a_budget_is_refused_by_message() -> None:
    design = whole_design()
    large = dataclasses.replace(design, locals=(Local("sums", "float32", 16 * 1024),))
    assert core_bytes(large) == 82 * 1024
    refusal = checked(large)
    assert isinstance(refusal, Refusal)
    assert "83968 bytes of tiles, locals and stack, of which a core has 65536" in refusal.reason

    x, y = design.streams
    third = dataclasses.replace(x, name="third")
    refusal = checked(dataclasses.replace(design, streams=(x, third, third, y)))
    assert isinstance(refusal, Refusal)
    assert "3 streams in, for which a core has 2 DMA channels" in refusal.reason

    refusal = checked(dataclasses.replace(design, columns=((1,),) * 9))
    assert isinstance(refusal, Refusal)
    assert "9 columns, of which npu2 has 8" in refusal.reason

    # A core takes nothing from the memory tiles' 512 KiB.
    size = 100 * 1024
    moved = Transfer("x", (size,), (1,)), Transfer("y", (size,), (1,))
    through = dataclasses.replace(
        design,
        buffers=tuple(dataclasses.replace(b, shape=(size,)) for b in design.buffers),
        columns=((),),
        streams=(
            Stream("taken", Direction.IN, 0, "bfloat16", size, moved[:1]),
            Stream("given", Direction.OUT, 0, "bfloat16", size, moved[1:], 3, source="taken"),
        ),
        calls=(),
    )
    refusal = checked(through)
    assert isinstance(refusal, Refusal)
    assert "614400 bytes of tiles in a memory tile, which has 524288" in refusal.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": 1024}, "bytes fill a tile x of 2048 bytes"),
        ({"level": 3}, "stream x follows 3 loops of 1"),
        ({"level": 0}, "stream x depends on a loop inside its level 0"),
        ({"broadcast": True}, "stream x is the same for all columns and depends on the column"),
    ],
)
def test_a_design_that_contradicts_itself_is_refused(
    change: Mapping[str, Any], reason: str
) -> None:
    design = whole_design()
    x, y = design.streams
    refusal = checked(dataclasses.replace(design, streams=(dataclasses.replace(x, **change), y)))
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


def test_patterns_of_the_shim() -> None:
    assert shim_pattern((4, 64), (64, 1), 2) == [(128, 1)]
    assert shim_pattern((4, 1, 64), (256, 64, 1), 2) == [(4, 128), (32, 1)]
    assert shim_pattern((16, 4096), (8192, 1), 2) == [(16, 4096), (4, 512), (512, 1)]
    for sizes, strides, reason in (
        ((4, 33), (64, 1), "rows of 33 elements of 2 bytes, 1 apart: a DMA moves 4 bytes"),
        ((4, 32), (33, 1), "a stride of 33 elements of 2 bytes"),
        ((4, 32), (64, 2), "rows of 128 elements of 2 bytes, 2 apart"),
        ((2, 3, 4, 5, 6), (9000, 1000, 100, 12, 1), "5 dimensions, of which the shim walks 4"),
        ((65, 2, 2, 2), (900, 100, 10, 1), "65 repeats of a pattern, of which the shim does 64"),
        ((2, 2000, 2), (9000, 4, 1), "2000 steps of an inner dimension"),
        ((2, 32), (1 << 22, 1), "a stride of 2097152 words, of which the shim takes 1048576"),
    ):
        with pytest.raises(UnaddressableError, match=reason):
            shim_pattern(sizes, strides, 2)
    with pytest.raises(UnaddressableError, match="runs of 3 elements"):
        memory_pattern(((4, 8), (3, 1)), 2)
    with pytest.raises(UnaddressableError, match="a stride of 262144 words"):
        memory_pattern(((4, 1 << 19), (4, 1)), 2)


# -- the interpreter ----------------------------------------------------------------------------


def with_stream(design: Design, place: int, **change: Any) -> Design:
    streams = list(design.streams)
    streams[place] = dataclasses.replace(streams[place], **change)
    return dataclasses.replace(design, streams=tuple(streams))


def test_an_access_outside_of_a_buffer_is_an_error() -> None:
    design = whole_design()
    x = {"x": numbers(1, 8, 2048)}
    size = design.streams[0].size
    late = Transfer("x", (size,), (1,), (Term(1, Index(Affine(64, size * 1, (size,)))),))
    with pytest.raises(
        DesignError,
        match=r"silu: stream x of column 7 goes over elements 14400\.\.16447 of buffer x, which",
    ):
        evaluate(with_stream(design, 0, transfers=(late,)), x)


def test_an_output_element_that_nobody_writes_is_an_error() -> None:
    design = whole_design()
    fewer = dataclasses.replace(design, columns=design.columns[:-1])
    with pytest.raises(DesignError, match="silu: element 14336 of output y is never written"):
        evaluate(fewer, {"x": numbers(1, 8, 2048)})


def test_a_kernel_that_leaves_its_tile_is_an_error() -> None:
    design = whole_design()
    (call,) = design.calls
    beyond = dataclasses.replace(call, arguments=("x", "y", design.streams[0].size + 32))
    with pytest.raises(DesignError, match=r"silu_bf16 in column 0: a load outside|a load of"):
        evaluate(dataclasses.replace(design, calls=(beyond,)), {"x": numbers(1, 8, 2048)})


def test_calls_are_held_to_the_kernels_signatures() -> None:
    design, x = whole_design(), {"x": numbers(1, 8, 2048)}
    for call, reason in (
        (Call("silu_bf16", 1, ("x", "y")), "silu_bf16 does not take these arguments"),
        (Call("silu_bf16", 1, ("x", "y", 1.5)), "its signature is bBi"),
        (Call("sigh_bf16", 1, ()), "no kernel sigh_bf16"),
    ):
        with pytest.raises(DesignError, match=reason):
            evaluate(dataclasses.replace(design, calls=(call,)), x)


def test_values_out_of_range_are_errors_and_missing_ones_are() -> None:
    inputs = {"x": numbers(1, 9, 8), "start": word(2)}
    design = made(Narrow(length=4), inputs, Target.NPU2)
    assert isinstance(design, Design)
    for start in (-1, 6):
        with pytest.raises(DesignError, match=f"narrow: start is {start}, expected 0..5"):
            evaluate(design, inputs, {"start": start})
    with pytest.raises(ValueError, match="the per-call value start is missing"):
        evaluate(design, inputs)
    with pytest.raises(ValueError, match="x is float32"):
        evaluate(design, {"x": inputs["x"].astype(np.float32)}, {"start": 0})


def test_idle_designs_write_nothing() -> None:
    inputs = {"x": numbers(1, 9, 8), "src": numbers(2, 4, 8), "start": word(9), "rows": word(0)}
    y = interpreted(SliceScatter(), inputs, Target.NPU1, {"start": 9, "rows": 0})["y"]
    assert ulps(y, inputs["x"]) == 0


def test_bytes_that_are_no_design_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_iron.kernels.designs import interpreter

    design = whole_design()
    encoded = interpreter.encode(design)
    for cut in (0, 8, 40, len(encoded) - 8):
        monkeypatch.setattr(interpreter, "encode", lambda _, cut=cut: encoded[:cut])
        with pytest.raises(DesignError, match="the bytes are no design"):
            evaluate(design, {"x": numbers(1, 8, 2048)})


# -- the schedule and the lowering --------------------------------------------------------------

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
    (Copy(), {"x": (64, 2048)}, {}),
    (Narrow(length=4), {"x": (9, 8), "start": (), "rows": ()}, {"start": 7, "rows": 2}),
    (SliceScatter(), {"x": (9, 8), "src": (4, 8), "start": ()}, {"start": 3}),
]
lowered = pytest.mark.parametrize(
    ("op", "shapes", "values"), LOWERED, ids=[op.name for op, *_ in LOWERED]
)


def design_of(op: Any, shapes: Mapping[str, tuple[int, ...]], device: Target) -> Design:
    kinds = {d.name: INT32 if d.kind is Kind.SCALAR else BFLOAT16 for d in op.inputs}
    specs = [
        (shapes[d.name], np.dtype(kinds[d.name])) if d.name in shapes else None for d in op.inputs
    ]
    design = design_for(op, specs, device)
    assert isinstance(design, Design), design
    return design


def walked(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The elements that a walk comes to, in order."""
    places = np.array([offset])
    for size, stride in zip(sizes, strides, strict=True):
        places = (places[:, None] + np.arange(size) * stride).reshape(-1)
    return places


@lowered
@pytest.mark.parametrize("device", Target)
def test_the_schedule_moves_each_streams_tiles_in_order(
    op: Any, shapes: Mapping[str, tuple[int, ...]], values: dict[str, int], device: Target
) -> None:
    design = design_of(op, shapes, device)
    scheduled: dict[tuple[int, str], list[tuple[str, Array]]] = {}
    for phase in schedule(design, values):
        queued: dict[tuple[int, str], int] = {}
        for d in phase:
            key = d.column, d.stream
            queued[key] = queued.get(key, 0) + 1
            moved = walked(d.offset, d.sizes, d.strides)
            scheduled.setdefault(key, []).append((d.buffer, moved))
        assert max(queued.values()) <= 4
    for column, trips in enumerate(design.columns):
        for stream in design.streams:
            moves = scheduled.get((column, stream.name), [])
            if stream.broadcast and column:
                assert not moves
                continue
            for buffer in {t.buffer for t in stream.transfers}:
                wanted = [
                    walked(t.offset(column, indices, values), t.sizes, t.strides)
                    for indices in itertools.product(*(range(n) for n in trips[: stream.level]))
                    for t in stream.transfers
                    if t.buffer == buffer
                ]
                found = [places for name, places in moves if name == buffer]
                assert (np.concatenate(found) == np.concatenate(wanted)).all()


def test_values_change_offsets_of_the_schedule_only() -> None:
    design = design_of(*LOWERED[-2][:2], Target.NPU2)
    one, other = (schedule(design, v) for v in ({"start": 0, "rows": 4}, {"start": 7, "rows": 2}))
    moved = [
        (a.offset, b.offset)
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first, second, strict=True)
        if dataclasses.replace(a, offset=b.offset) == b
    ]
    assert len(moved) == sum(map(len, one))
    assert [pair for pair in moved if pair[0] != pair[1]] == [(0, 56), (8, 64), (16, 64), (24, 64)]


def test_neighbouring_tiles_share_a_descriptor() -> None:
    design = design_of(GEMM(b_col_maj=True), {"a": (64, 4096), "b": (512, 4096)}, Target.NPU2)
    (phase,) = schedule(design, {})
    a = next(d for d in phase if d.stream == "a")
    assert (a.sizes, a.strides) == ((64, 64, 64), (64, 4096, 1))


class Fake:
    """mlir-aie's names as its 1.4.0 reference gives them, recording what is done with them.

    A core's program and the sequence run when the program is resolved, loops and numbers in plain
    Python.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int, tuple[Any, ...]]] = []
        self.moves: list[tuple[str, str, str, dict[str, Any]]] = []
        self.held: dict[str, int] = {}
        self.fifos: dict[str, Any] = {}
        self.column = -1
        fake = self

        class Handle:
            def __init__(self, fifo: ObjectFifo, produces: bool) -> None:
                self.fifo, self.produces = fifo, produces

            def forward(
                self,
                *,
                obj_type: Any = None,
                depth: int | None = None,
                name: str | None = None,
                dims_to_stream: list[tuple[int, int]] | None = None,
            ) -> ObjectFifo:
                assert not self.produces
                assert math.prod(obj_type.__args__[0]) == math.prod(self.fifo.type.__args__[0])
                return ObjectFifo(obj_type, depth=depth, name=name, dims_to_stream=dims_to_stream)

            def acquire(self, number: int) -> str:
                fake.held[self.fifo.name] = fake.held.get(self.fifo.name, 0) + number
                assert fake.held[self.fifo.name] <= self.fifo.depth
                return self.fifo.name

            def release(self, number: int) -> None:
                fake.held[self.fifo.name] -= number
                assert fake.held[self.fifo.name] >= 0

            def fill(self, source: str, **how: Any) -> None:
                assert self.produces
                self.move("fill", source, how)

            def drain(self, destination: str, **how: Any) -> None:
                assert not self.produces
                self.move("drain", destination, how)

            def move(self, verb: str, buffer: str, how: dict[str, Any]) -> None:
                assert set(how) == {"offset", "sizes", "strides", "wait", "group"}
                assert len(how["sizes"]) == len(how["strides"]) == 4
                assert not how["group"].finished
                fake.moves.append((verb, self.fifo.name, buffer, how))

        class ObjectFifo:
            def __init__(
                self,
                obj_type: Any,
                depth: int | None = 2,
                name: str | None = None,
                dims_to_stream: list[tuple[int, int]] | None = None,
            ) -> None:
                assert name is not None
                assert name not in fake.fifos
                self.type, self.depth, self.name, self.dims = obj_type, depth, name, dims_to_stream
                fake.fifos[name] = self

            def prod(self) -> Handle:
                return Handle(self, True)

            def cons(self) -> Handle:
                return Handle(self, False)

        class Kernel:
            def __init__(self, name: str, bin_name: str, arg_types: list[Any]) -> None:
                self.name, self.bin_name, self.types = name, bin_name, arg_types

            def __call__(self, *arguments: Any) -> None:
                assert len(arguments) == len(self.types)
                fake.calls.append((self.name, fake.column, arguments))

        class Buffer:
            def __init__(self, type: Any, name: str) -> None:
                self.name = name

        class Worker:
            def __init__(self, core_fn: Any, fn_args: list[Any], stack_size: int) -> None:
                assert len({k.bin_name for k in fn_args if isinstance(k, Kernel)}) == 1
                self.run = lambda: core_fn(*fn_args)

        class TaskGroup:
            finished = False

            def finish(self) -> None:
                self.finished = True

        class Runtime:
            def __init__(self, sequence: Any, fn_args: list[Any]) -> None:
                # Types declare the buffers; what else is given is passed on.
                given = [x if isinstance(x, Handle) else f"b{i}" for i, x in enumerate(fn_args)]
                self.run = lambda: sequence(*given)

        class Program:
            def __init__(self, device: str, rt: Runtime, workers: list[Worker]) -> None:
                self.device, self.rt, self.workers = device, rt, workers

            def resolve_program(self) -> str:
                for fake.column, worker in enumerate(self.workers):
                    worker.run()
                self.rt.run()
                assert not any(fake.held.values())
                return self.device

        iron = types.ModuleType("aie.iron")
        for part in (ObjectFifo, Kernel, Buffer, Worker, TaskGroup, Runtime, Program):
            setattr(iron, part.__name__, part)
        device = types.ModuleType("aie.iron.device")
        device.NPU1, device.NPU2 = (lambda: "NPU1"), (lambda: "NPU2")  # type: ignore[attr-defined]
        flow = types.ModuleType("aie.iron.controlflow")
        flow.range_ = range  # type: ignore[attr-defined]
        arith = types.ModuleType("aie.dialects.arith")
        for name, function in {
            "constant": lambda _, number: number,
            "index_cast": lambda _, index: index,
            "addi": lambda a, b: a + b,
            "muli": lambda a, b: a * b,
            "minsi": min,
            "maxsi": max,
        }.items():
            setattr(arith, name, function)
        mlir_types = types.ModuleType("aie.extras.types")
        mlir_types.i32 = lambda: "i32"  # type: ignore[attr-defined]
        for module in (iron, device, flow, arith, mlir_types):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        for package in ("aie", "aie.dialects", "aie.extras"):
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))


@lowered
@pytest.mark.parametrize("device", Target)
def test_the_lowering_says_to_mlir_aie_what_the_design_says(
    op: Any,
    shapes: Mapping[str, tuple[int, ...]],
    values: dict[str, int],
    device: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design = design_of(op, shapes, device)
    fake = Fake(monkeypatch)
    assert lower(design, values) == device.name

    # Each move is the schedule's, at the end of a fifo of its stream.
    descriptors = [d for phase in schedule(design, values) for d in phase]
    assert len(fake.moves) == len(descriptors)
    for (verb, fifo, buffer, how), d in zip(fake.moves, descriptors, strict=True):
        stream = next(s for s in design.streams if s.name == d.stream)
        assert verb == ("fill" if stream.direction is Direction.IN else "drain")
        assert fifo.startswith(f"{d.stream}_")
        assert design.buffers[int(buffer[1:])].name == d.buffer
        places = walked(how["offset"], tuple(how["sizes"]), tuple(how["strides"]))
        assert (places == walked(d.offset, d.sizes, d.strides)).all()

    # Each core calls its kernels as often as the loops say, with the numbers of its loops.
    wanted = []
    for column, trips in enumerate(design.columns):
        for call in design.calls:
            for indices in itertools.product(*(range(n) for n in trips[: call.level])):
                numbers = tuple(
                    a.at(column, indices, {}) if isinstance(a, Index) else a
                    for a in call.arguments
                    if not isinstance(a, str)
                )
                wanted.append((call.kernel, column, numbers))
    found = [
        (name, column, tuple(a for a in arguments if isinstance(a, int | float)))
        for name, column, arguments in fake.calls
    ]
    assert sorted(found) == sorted(wanted)

    # What is arranged is, on its way through a memory tile.
    arranged = [s for s in design.streams if s.arrange]
    for stream in arranged:
        dims = [f.dims for n, f in fake.fifos.items() if n.startswith(stream.name) and f.dims]
        assert dims
        assert all(d == list(stream.arrange) for d in dims)


def test_without_mlir_aie_the_lowering_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aie", None)
    with pytest.raises(ImportError, match=r"designs are built with mlir-aie 1\.4\.0, which is not"):
        lower(whole_design(), {})


def test_kernels_are_found_in_their_files() -> None:
    assert kernel_source("gemv_finish_bf16").name == "gemv.cc"
    with pytest.raises(KeyError):
        kernel_source("sigh_bf16")


# -- tiling ---------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 80), st.integers(1, 8))
def test_splits_cover_everything(total: int, most: int, columns: int) -> None:
    split = best_split(total, most, columns)
    assert split.tile <= most
    start, covered = split.start(0, 1, columns), np.zeros(total, bool)
    trips = split.over(columns)
    assert len(trips) <= columns
    assert min(trips) > 0
    for column, steps in enumerate(trips):
        for step in range(steps):
            first = start.at(column, (step,), {})
            assert 0 <= first <= total - split.tile
            covered[first : first + split.tile] = True
    assert covered.all()
    assert split.overlaps == (total % split.tile != 0)
    assert Split(total, 1).blocks == total
