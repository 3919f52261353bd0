"""What the CPU kernels refuse, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels import (
    BF16,
    F32,
    I64,
    Case,
    normal,
    run,
    scalar,
)

from onnx_iron.kernels import run_kernel
from onnx_iron.native import library_path

CONV = [normal(8, 4), normal(3, 4), normal(2, 4), None]
CONV_OUTPUTS = [((8, 4), F32), ((2, 4), F32)]
SCAN = [normal(8, 4), normal(8, 4), normal(4, 3), normal(8, 3), normal(8, 3), normal(4, 3)]
SCAN_OUTPUTS = [((8, 4), F32), ((4, 3), F32)]
HEADS = [normal(5, 4, 6), normal(5, 2, 6), normal(5, 2, 3), normal(2, 6, 3)]
HEADS_OUTPUTS = [((5, 4, 3), F32), ((2, 6, 3), F32)]
QKV = [normal(2, 2, 4), normal(9, 2, 4), normal(9, 2, 4)]
BAD_CALLS = [
    (
        Case("CausalConv1d", [*CONV, scalar(9)], CONV_OUTPUTS),
        "CausalConv1d: rows is 9, expected 0..8 (x has 8 rows)",
    ),
    (
        Case("CausalConv1d", [*CONV, scalar(-1)], CONV_OUTPUTS),
        "CausalConv1d: rows is -1, expected 0..8 (x has 8 rows)",
    ),
    *(
        (
            Case("SelectiveScan", [*SCAN, None, None, scalar(rows)], SCAN_OUTPUTS),
            f"SelectiveScan: rows is {rows}, expected 0..8 (x has 8 rows)",
        )
        for rows in (-1, 9)
    ),
    *(
        (
            Case("LinearAttention", [*HEADS, None, None, scalar(rows)], HEADS_OUTPUTS),
            f"LinearAttention: rows is {rows}, expected 0..5 (query has 5 rows)",
        )
        for rows in (-1, 6)
    ),
    (
        Case("Embedding", [normal(5, 3), np.array([1, 0, 5])], [((3, 3), F32)]),
        "Embedding: ids[2] is 5, expected 0..4",
    ),
    (
        Case("Embedding", [normal(5, 3), np.array([-1])], [((1, 3), F32)]),
        "Embedding: ids[0] is -1, expected 0..4",
    ),
    (
        Case("Gather", [normal(5, 3), np.array([4, -6])], [((2, 3), F32)]),
        "Gather: indices[1] is -6, expected -5..4",
    ),
    (
        Case("Attention", [*QKV, scalar(9)], [((2, 2, 4), F32)]),
        "Attention: position is 9, expected 0..8 (key has 9 rows)",
    ),
    (
        Case("Attention", [*QKV, scalar(-1)], [((2, 2, 4), F32)]),
        "Attention: position is -1, expected 0..8 (key has 9 rows)",
    ),
    (
        Case("Attention", [*QKV, None, scalar(0)], [((2, 2, 4), F32)]),
        "Attention: kv_rows is 0, expected 1..9 (key has 9 rows)",
    ),
    (
        Case("Attention", [*QKV, None, scalar(10)], [((2, 2, 4), F32)]),
        "Attention: kv_rows is 10, expected 1..9 (key has 9 rows)",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(0), scalar(4)], [((3, 2), F32)], {"length": 3}),
        "Narrow: rows is 4, expected 0..3",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(6)], [((3, 2), F32)], {"length": 3}),
        "Narrow: start is 6 and rows 3, expected 0 <= start <= 5 (the axis has 8 entries)",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(-1), scalar(0)], [((3, 2), F32)], {"length": 3}),
        "Narrow: start is -1 and rows 0, expected 0 <= start <= 8 (the axis has 8 entries)",
    ),
    (
        Case("SliceScatter", [normal(8, 2), normal(3, 2), scalar(2**31 - 1)], [((8, 2), F32)]),
        "SliceScatter: start is 2147483647 and rows 3, expected 0 <= start <= 5 "
        "(the axis has 8 entries)",
    ),
    (
        Case("SliceScatter", [normal(8, 2), normal(3, 2), scalar(0), scalar(4)], [((8, 2), F32)]),
        "SliceScatter: rows is 4, expected 0..3",
    ),
]


@pytest.mark.parametrize(("case", "message"), BAD_CALLS, ids=[m for _, m in BAD_CALLS])
def test_a_per_call_value_out_of_range_is_refused_and_nothing_written(
    case: Case, message: str
) -> None:
    outputs = [np.full(shape, 77, dtype) for shape, dtype in case.outputs]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        case.run(outputs)
    assert str(caught.value) == message
    assert all((out == 77).all() for out in outputs)


# -- nodes that can't be ----------------------------------------------------------------------

BAD_NODES = [
    (Case("Nonsense", [], []), "Nonsense: there is no CPU kernel for this op"),
    (Case("SiLU", [], [((3,), F32)]), "SiLU: it has 0 inputs, expected 1"),
    (Case("Add", [normal(3), None], [((3,), F32)]), "Add: input 1 is omitted, expected a tensor"),
    (
        Case("SiLU", [np.arange(3)], [((3,), I64)]),
        "SiLU: x is int64, expected float32 or bfloat16",
    ),
    (
        Case("SiLU", [normal(3)], [((3,), BF16)]),
        "SiLU: out is bfloat16, expected float32 (as x)",
    ),
    (
        Case("SiLU", [normal(3)], [((2, 2), F32)]),
        "SiLU: out has shape (2, 2), expected (3,) (as x)",
    ),
    (
        Case("GELU", [normal(3)], [((3,), F32)], {"approximate": "some"}),
        "GELU: approximate is 'some', expected 'none' or 'tanh'",
    ),
    (
        Case("GELU", [normal(3)], [((3,), F32)], {"approximate": 1}),
        "GELU: attribute approximate is an int, expected a string",
    ),
    (
        Case("Add", [normal(2, 3), normal(4)], [((2, 3), F32)]),
        "Add: shapes (2, 3) and (4,) do not broadcast",
    ),
    (
        Case("Add", [normal(3), normal(3, dtype=BF16)], [((3,), F32)]),
        "Add: b is bfloat16, expected float32 (as a)",
    ),
    (
        Case("Mod", [np.arange(3), np.arange(3)], [((3,), I64)], {"fmod": 1}),
        "Mod: fmod is 1, expected 0",
    ),
    (
        Case("RMSNorm", [normal(2, 3), normal(2)], [((2, 3), F32)]),
        "RMSNorm: weight has shape (2,), expected (3,) (x's last dimension)",
    ),
    (
        Case("RMSNorm", [np.array(1, F32)], [((), F32)]),
        "RMSNorm: x has shape (), expected (..., D)",
    ),
    (
        Case("RMSNormalization", [normal(2, 5), normal(3)], [((2, 5), F32)], {"axis": 0}),
        "RMSNormalization: scale has shape (3,), expected one that broadcasts to (2, 5) (x from "
        "axis 0 on)",
    ),
    (
        Case("Softmax", [normal(2, 3)], [((2, 3), F32)], {"axis": 5}),
        "Softmax: axis is 5, expected -2..1 (2 dimensions)",
    ),
    (
        Case("RoPE", [normal(4, 5), normal(2, 5)], [((4, 5), F32)]),
        "RoPE: x has shape (4, 5), expected (R, D) or (B, R, D) with an even D",
    ),
    (
        Case("RoPE", [normal(4, 6), normal(3, 6)], [((4, 6), F32)]),
        "RoPE: angles has shape (3, 6), expected (A, 6) with A a divisor of 4 (x's rows)",
    ),
    (
        Case("RoPE", [normal(2, 4, 6), normal(3, 4, 6)], [((2, 4, 6), F32)]),
        "RoPE: angles has shape (3, 4, 6), expected (A, 6) with A a divisor of 4 (x's rows), or "
        "(2, A, 6)",
    ),
    (
        Case("RoPE", [normal(4, 6), normal(2, 6)], [((4, 6), F32)], {"interleaved": 2}),
        "RoPE: interleaved is 2, expected 0 or 1",
    ),
    (
        Case("CausalConv1d", [normal(8, 4), normal(3, 5), normal(2, 4)], CONV_OUTPUTS),
        "CausalConv1d: taps has shape (3, 5), expected (K, 4) with K >= 1 (x has shape (8, 4))",
    ),
    (
        Case("CausalConv1d", [normal(8, 4), normal(3, 4), normal(3, 4)], CONV_OUTPUTS),
        "CausalConv1d: state has shape (3, 4), expected (2, 4) (taps has 3 rows)",
    ),
    (
        Case("CausalConv1d", [*CONV, np.array(1)], CONV_OUTPUTS),
        "CausalConv1d: rows is int64, expected int32",
    ),
    (
        Case("CausalConv1d", [*CONV, np.zeros(2, np.int32)], CONV_OUTPUTS),
        "CausalConv1d: rows has shape (2,), expected () or (1,)",
    ),
    (
        Case("GEMV", [normal(4, 3), normal(4)], [((4,), F32)]),
        "GEMV: x has shape (4,), expected (3,) or (1, 3) (weight has shape (4, 3))",
    ),
    (
        Case("GEMM", [normal(4, 3), normal(4, 5)], [((4, 5), F32)]),
        "GEMM: b has shape (4, 5), expected (3, N) (a has shape (4, 3), b_col_maj is 0)",
    ),
    (
        Case("GEMM", [normal(4, 3), normal(5, 4)], [((4, 5), F32)], {"b_col_maj": 1}),
        "GEMM: b has shape (5, 4), expected (N, 3) (a has shape (4, 3), b_col_maj is 1)",
    ),
    (
        Case("GEMM", [normal(4, 3), normal(3, 5)], [((4, 5), F32)], {"precision": "low"}),
        "GEMM: precision is 'low', expected 'default', 'high' or 'highest'",
    ),
    (
        Case("ProjectionGEMM", [normal(4, 3), normal(3, 5)], [((4, 5), F32)], {"epilogue": "no"}),
        "ProjectionGEMM: epilogue is 'no', expected 'none', 'gelu', 'sigmoid' or 'silu'",
    ),
    (
        Case("Embedding", [normal(4, 3), normal(2)], [((2, 3), F32)]),
        "Embedding: ids is float32, expected int32 or int64",
    ),
    (
        Case("Attention", [normal(2, 3, 4), *QKV[1:]], [((2, 3, 4), F32)]),
        "Attention: query has 3 heads, expected a multiple of 2 (key's)",
    ),
    (
        Case("Attention", [*QKV, None, None, np.ones((2, 8), bool)], [((2, 2, 4), F32)]),
        "Attention: mask has shape (2, 8), expected (2, 2, 9), any of them 1, or without the first",
    ),
    (
        Case("Attention", [*QKV, None, None, np.ones((2, 9), F32)], [((2, 2, 4), F32)]),
        "Attention: mask is float32, expected bool",
    ),
    (
        Case("Attention", [*QKV, *[None] * 3, normal(2, 1, 2, 9)], [((2, 2, 4), F32)]),
        "Attention: bias has shape (2, 1, 2, 9), expected (2, 2, 9), any of them 1, or without the "
        "first",
    ),
    (
        Case("Attention", [*QKV, *[None] * 5, normal(3)], [((2, 2, 4), F32)]),
        "Attention: sinks has shape (3,), expected (2,) (query's heads)",
    ),
    (
        Case("Attention", [*QKV], [((2, 2, 4), F32)], {"window": 2}),
        "Attention: it has a window or alibi without is_causal",
    ),
    (
        Case("Attention", [*QKV], [((2, 2, 4), F32)], {"softcap": -1.0}),
        "Attention: softcap is -1, expected a finite number above 0",
    ),
    (
        Case("Attention", [QKV[0][None], *QKV[1:]], [((1, 2, 2, 4), F32)]),
        "Attention: key has shape (9, 2, 4), expected (1, S, G, 4) with S and G > 0 (query has "
        "shape (1, 2, 2, 4))",
    ),
    (
        Case("Attention", [QKV[0], QKV[1], normal(8, 2, 4)], [((2, 2, 4), F32)]),
        "Attention: value has shape (8, 2, 4), expected (9, 2, Dv) (key has shape (9, 2, 4))",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(0)], [((9, 2), F32)], {"length": 9}),
        "Narrow: length is 9, expected 0..8 (x has shape (8, 2), axis is 0)",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(0)], [((9, 2), F32)]),
        "Narrow: attribute length is missing, expected an int",
    ),
    (
        Case("SliceScatter", [normal(8, 2), normal(3, 3), scalar(0)], [((8, 2), F32)]),
        "SliceScatter: src has shape (3, 3), expected (3, 2) (as x but for axis 0)",
    ),
    (
        Case("SelectiveScan", [*SCAN[:3], normal(8, 4), *SCAN[4:]], SCAN_OUTPUTS),
        "SelectiveScan: b has shape (8, 4), expected (8, 3) (x has shape (8, 4) and a (4, 3))",
    ),
    (
        Case("SelectiveScan", [*SCAN[:2], normal(3, 3), *SCAN[3:]], SCAN_OUTPUTS),
        "SelectiveScan: a has shape (3, 3), expected (4, N) (x has shape (8, 4))",
    ),
    (
        Case("SelectiveScan", [*SCAN[:5], normal(4, 3, dtype=BF16)], SCAN_OUTPUTS),
        "SelectiveScan: state is bfloat16, expected float32",
    ),
    (
        Case("SelectiveScan", [*SCAN, None, normal(3)], SCAN_OUTPUTS),
        "SelectiveScan: dt_bias has shape (3,), expected (4,) (x's channels)",
    ),
    (
        Case("LinearAttention", [HEADS[0], normal(5, 3, 6), *HEADS[2:]], HEADS_OUTPUTS),
        "LinearAttention: key has shape (5, 3, 6), expected (5, 4, 6) (as query) with G heads, "
        "G a divisor of 4",
    ),
    (
        Case("LinearAttention", [*HEADS[:3], normal(2, 3, 6)], HEADS_OUTPUTS),
        "LinearAttention: state has shape (2, 3, 6), expected (2, 6, 3) (by key and value)",
    ),
    (
        Case("LinearAttention", [normal(5, 2, 0)] * 2 + [HEADS[2], normal(2, 0, 3)], HEADS_OUTPUTS),
        "LinearAttention: query has shape (5, 2, 0), expected (T, H, K) or (B, T, H, K) with "
        "K >= 1",
    ),
    (
        Case("LinearAttention", [*HEADS, normal(5, 4)], HEADS_OUTPUTS),
        "LinearAttention: decay has shape (5, 4), expected (5, 2) or (5, 2, 6) (as key)",
    ),
    (
        Case("LinearAttention", [*HEADS, None, normal(5, 4)], HEADS_OUTPUTS),
        "LinearAttention: beta has shape (5, 4), expected (5, 2) (key's heads)",
    ),
    (
        Case("Slice", [normal(8)], [((4,), F32)], {"starts": [5]}),
        "Slice: starts[0] is 5 and steps[0] 1, expected 4 entries (out's) within axis 0 of x, (8,)",
    ),
    (
        Case("Slice", [normal(8)], [((4,), F32)], {"starts": [5], "steps": [-2]}),
        "Slice: starts[0] is 5 and steps[0] -2, "
        "expected 4 entries (out's) within axis 0 of x, (8,)",
    ),
    (
        Case("Slice", [normal(8)], [((4,), F32)], {"starts": [0, 0], "axes": [0, -1]}),
        "Slice: axes is (0, -1), expected every axis once",
    ),
    (
        Case("Transpose", [normal(2, 3)], [((3, 2), F32)], {"perm": [1, 1]}),
        "Transpose: perm is (1, 1), expected a permutation of the axes of x, (2, 3)",
    ),
    (
        Case("Concat", [normal(2, 3), normal(2, 4)], [((4, 3), F32)], {"axis": 0}),
        "Concat: input 1 has shape (2, 4), expected (2, 3) (as input 0 but for axis 0)",
    ),
    (
        Case("MatMul", [normal(2, 3), normal(4, 5)], [((2, 5), F32)]),
        "MatMul: b has shape (4, 5), expected 3 where its products are summed (a has shape (2, 3))",
    ),
]


@pytest.mark.parametrize(("case", "message"), BAD_NODES, ids=[m for _, m in BAD_NODES])
def test_a_node_that_cannot_be_is_refused_when_its_kernel_is_made(case: Case, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        case.run()
    assert str(caught.value) == message


def test_run_kernel_refuses_what_has_no_kernel_or_cannot_be_written() -> None:
    with pytest.raises(ValueError, match=r"^an operand is float64, expected one of"):
        run("SiLU", [np.zeros(3)], (3,), F32)
    with pytest.raises(ValueError, match=r"^an output array is not contiguous and writeable"):
        run_kernel("SiLU", [normal(3)], [np.zeros((3, 2), F32)[:, 0]])
    with pytest.raises(ValueError, match=r"^threads is 0, expected 1\.\.256"):
        run("SiLU", [normal(3)], (3,), F32, threads=0)


def test_a_library_that_is_not_there_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_IRON_LIBRARY", "/nowhere/libonnx_iron.so")
    with pytest.raises(
        ImportError, match=r"'/nowhere/libonnx_iron\.so', and there is no such file"
    ):
        library_path()
