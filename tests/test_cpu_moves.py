"""The CPU kernels that move data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cpu_kernels import (
    BF16,
    BOOL,
    F32,
    I32,
    I64,
    REAL,
    Case,
    assert_same_bits,
    normal,
    run,
    scalar,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.kernels import run_kernel

DTYPES = pytest.mark.parametrize("dtype", [F32, BF16, I32, I64, BOOL], ids=str)


@DTYPES
def test_transpose_is_numpys(dtype: np.dtype) -> None:
    x = normal(2, 3, 1, 5).astype(dtype)
    for perm in itertools.permutations(range(4)):
        expected = np.ascontiguousarray(x.transpose(perm))
        assert_same_bits(run("Transpose", [x], expected.shape, dtype, perm=perm), expected)
    assert_same_bits(run("Transpose", [x], (5, 1, 3, 2), dtype), np.ascontiguousarray(x.T))


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat_is_numpys(axis: int, dtype: np.dtype) -> None:
    parts = []
    for size in (3, 0, 1, 4):
        shape = [2, 3, 4]
        shape[axis] = size
        parts.append(normal(*shape).astype(dtype))
    expected = np.concatenate(parts, axis)
    assert_same_bits(run("Concat", parts, expected.shape, dtype, axis=axis), expected)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_slice_is_numpys(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    x = normal(*shape)
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    index: list[slice] = [slice(None)] * len(shape)
    starts, steps = [], []
    for axis in axes:
        start = data.draw(st.integers(0, shape[axis] - 1))
        step = data.draw(st.integers(1, 3) | st.integers(-3, -1))
        index[axis] = slice(start, data.draw(st.none() | st.integers(0, shape[axis])), step)
        starts.append(start if data.draw(st.booleans()) else start - shape[axis])
        steps.append(step)
    expected = np.ascontiguousarray(x[tuple(index)])
    got = run("Slice", [x], expected.shape, F32, starts=starts, axes=axes, steps=steps)
    assert_same_bits(got, expected)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_is_numpys_take(axis: int, dtype: np.dtype) -> None:
    x = normal(3, 4, 5).astype(dtype)
    for indices in (
        np.array([[0, 2], [-1, 1]]),
        np.array(-3, np.int32),
        np.zeros((0, 2), np.int64),
    ):
        expected = np.take(x, indices, axis)
        assert_same_bits(run("Gather", [x, indices], expected.shape, dtype, axis=axis), expected)


@REAL
@pytest.mark.parametrize("ids", [I32, I64], ids=str)
def test_embedding_takes_rows(ids: np.dtype, dtype: np.dtype) -> None:
    weight, wanted = normal(9, 7, dtype=dtype), np.array([[0, 8], [3, 3]], ids)
    assert_same_bits(run("Embedding", [weight, wanted], (2, 2, 7), dtype), weight[wanted])


@DTYPES
def test_copy_takes_any_shape_of_as_many_elements(dtype: np.dtype) -> None:
    x = normal(6, 4).astype(dtype)
    assert_same_bits(run("Copy", [x], (3, 8), dtype), x.reshape(3, 8))


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_narrow_reads_at_start_and_repeats_the_last_entry(axis: int, dtype: np.dtype) -> None:
    x = normal(5, 5, 5).astype(dtype)
    shape = [5, 5, 5]
    shape[axis] = 3
    for start, rows in itertools.product(range(6), (None, 0, 1, 3)):
        if start + (3 if rows is None else rows) > 5:
            continue
        expected = np.take(x, np.minimum(np.arange(start, start + 3), 4), axis)
        inputs = [x, scalar(start), None if rows is None else np.array([rows], np.int32)]
        assert_same_bits(run("Narrow", inputs, shape, dtype, axis=axis, length=3), expected)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slice_scatter_writes_at_start_in_place_or_not(axis: int, dtype: np.dtype) -> None:
    shape = [5, 5, 5]
    shape[axis] = 3
    x, src = normal(5, 5, 5).astype(dtype), normal(*shape, seed=1).astype(dtype)
    for start, rows in itertools.product(range(6), (None, 0, 1, 3)):
        count = 3 if rows is None else rows
        if start + count > 5:
            continue
        expected = x.copy()
        to = np.moveaxis(expected, axis, 0)
        to[start : start + count] = np.moveaxis(src, axis, 0)[:count]
        inputs = [x, src, scalar(start), None if rows is None else scalar(rows)]
        assert_same_bits(run("SliceScatter", inputs, x.shape, dtype, axis=axis), expected)
        state = x.copy()
        run_kernel("SliceScatter", [state, *inputs[1:]], [state], {"axis": axis})
        assert_same_bits(state, expected)


@pytest.mark.parametrize(
    "case",
    [
        Case("SiLU", [normal(0)], [((0,), F32)]),
        Case("RMSNorm", [normal(0, 5)], [((0, 5), F32)]),
        Case("Softmax", [normal(3, 0)], [((3, 0), F32)]),
        Case("RoPE", [normal(0, 4), normal(2, 4)], [((0, 4), F32)]),
        Case("GEMM", [normal(0, 3), normal(5, 3)], [((0, 5), F32)], {"b_col_maj": 1}),
        Case("GEMM", [normal(2, 3), normal(3, 0)], [((2, 0), F32)]),
        Case("MatMul", [normal(2, 0, 3), normal(2, 3, 4)], [((2, 0, 4), F32)]),
        Case("Embedding", [normal(5, 3), np.zeros(0, np.int64)], [((0, 3), F32)]),
        Case("Attention", [normal(0, 2, 4), *(normal(9, 2, 4),) * 2], [((0, 2, 4), F32)]),
        Case("Attention", [normal(3, 0, 4), *(normal(9, 2, 4),) * 2], [((3, 0, 4), F32)]),
        Case(
            "CausalConv1d",
            [normal(4, 0), normal(3, 0), normal(2, 0)],
            [((4, 0), F32), ((2, 0), F32)],
        ),
        Case("Transpose", [normal(0, 3)], [((3, 0), F32)]),
        Case("Concat", [normal(0, 3), normal(0, 2)], [((0, 5), F32)], {"axis": 1}),
        Case("Slice", [normal(4, 0)], [((2, 0), F32)], {"starts": [1]}),
    ],
    ids=str,
)
def test_nothing_in_gives_nothing_out(case: Case) -> None:
    for threads in (1, 2):
        assert all(out.size == 0 for out in case.run(threads=threads))
