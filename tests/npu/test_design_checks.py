"""What does not fit a device, or contradicts itself, is refused with a reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from design_cases import (
    interpreted,
    made,
    numbers,
    ulps,
    whole_design,
    word,
)
from hypothesis import given
from hypothesis import strategies as st

from onnx_iron.dtypes import BFLOAT16, FLOAT32
from onnx_iron.kernels.designs import Design, Refusal, Target, design_for
from onnx_iron.kernels.designs.check import checked, core_bytes
from onnx_iron.kernels.designs.design import (
    Affine,
    Call,
    Direction,
    Index,
    Local,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.interpreter import DesignError, evaluate
from onnx_iron.kernels.designs.target import UnaddressableError, memory_pattern, shim_pattern
from onnx_iron.kernels.designs.tiling import Split, best_split
from onnx_iron.operators.arithmetic import Add
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.embedding import Embedding
from onnx_iron.operators.gemm import GEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.narrow import Narrow
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.slice_scatter import SliceScatter
from onnx_iron.operators.softmax import Softmax

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
        (GEMV(), {"weight": (64, 100), "x": (100,)}, "gemv: K 100 is no multiple of 32 lanes"),
        (GEMV(), {"weight": (15, 64), "x": (64,)}, "15 rows; a DMA writes an even number of them"),
        (GEMM(), {"a": (3, 64), "b": (64, 64)}, "gemm: M 3 is less than a block of 4"),
        (GEMM(), {"a": (4, 36), "b": (36, 64)}, "K 36; N must be even and K a multiple of 8"),
        (
            Attention(),
            {"query": (1, 2, 48), "key": (9, 1, 48), "value": (9, 1, 48)},
            "attention: head_dim 48 is no multiple of 32 lanes",
        ),
        (
            Attention(is_causal=True, softcap=30.0, window=4),
            {"query": (1, 2, 64), "key": (9, 1, 64), "value": (9, 1, 64)},
            "attention: it has softcap and window, which the kernel has not",
        ),
        (
            Attention(),
            {"query": (2, 1, 2, 64), "key": (2, 9, 1, 64), "value": (2, 9, 1, 64)},
            "attention: it has a batch, which the kernel has not",
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


@pytest.mark.parametrize("row", [-1, 10])
def test_an_id_that_is_no_row_is_an_error(row: int) -> None:
    inputs = {"weight": numbers(1, 10, 8), "ids": np.array([0, row], np.int32)}
    design = made(Embedding(), inputs, Target.NPU2)
    assert isinstance(design, Design)
    with pytest.raises(DesignError, match=rf"ids\[1\] is {row}, expected 0\.\.9"):
        evaluate(design, {"weight": inputs["weight"]}, {"ids[0]": 0, "ids[1]": row})


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
