"""The CPU kernels of matrix products and attention."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy.signal
import scipy.special
import torch
from cpu_kernels import (
    BF16,
    EPS,
    F32,
    REAL,
    assert_same_bits,
    gelu,
    logistic,
    narrow,
    normal,
    run,
    scalar,
    silu,
    steps_apart,
    wide,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.kernels import cpu_path


def assert_product(got: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> None:
    """got is a @ b but for float32's rounding of the sums and one rounding of the result."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    exact, scale = left @ right, np.abs(left) @ np.abs(right)
    length = left.shape[-1]
    bound = scale * 2.0**-24 * (length / 8 + 8) + np.abs(exact) * EPS[dtype] + 1e-30
    assert (np.abs(got.astype(np.float64) - exact) <= bound).all()


LENGTHS = [0, 1, 5, 8, 13, 64, 100, 576, 767, 769, 1536, 2305]


@REAL
@pytest.mark.parametrize("k", LENGTHS)
def test_products_are_float64s(k: int, dtype: np.dtype) -> None:
    for m, n in ((1, 1), (1, 37), (2, 9), (3, 8), (7, 20), (100, 33), (97, 3)):
        a, b = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1)
        got = run("GEMM", [a, b], (m, n), dtype, b_col_maj=1, precision="high")
        assert_product(got, a, b.T, dtype)
        turned = np.ascontiguousarray(b.T)
        assert_product(run("GEMM", [a, turned], (m, n), dtype), a, turned, dtype)
        assert_product(run("ProjectionGEMM", [a, turned], (m, n), dtype), a, turned, dtype)
    weight, x = normal(37, k, dtype=dtype), normal(k, dtype=dtype, seed=1)
    got = run("GEMV", [weight, x], (37,), dtype)
    assert_product(got, weight, x, dtype)
    assert_same_bits(run("GEMV", [weight, x[None]], (1, 37), dtype), got[None])


@REAL
@pytest.mark.parametrize("k", [1, 5, 9, 77])
def test_an_infinity_in_one_row_of_a_weight_is_in_no_other_product(k: int, dtype: np.dtype) -> None:
    weight, x = normal(9, k, dtype=dtype), normal(3, k, dtype=dtype, seed=1)
    weight[::2] = math.inf
    for row in x:
        assert np.isfinite(wide(run("GEMV", [weight, row], (9,), dtype))[1::2]).all()
    for rows in (1, 3):
        got = run("GEMM", [x[:rows], weight], (rows, 9), dtype, b_col_maj=1, precision="high")
        assert np.isfinite(wide(got)[:, 1::2]).all()


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 110),
    n=st.integers(1, 40),
    k=st.integers(0, 200) | st.sampled_from([767, 768, 769, 1536, 1600]),
    threads=st.sampled_from([1, 3]),
    dtype=st.sampled_from([F32, BF16]),
    op=st.sampled_from(["GEMM", "ProjectionGEMM"]),
)
def test_a_row_has_gemvs_bits_however_many_rows_there_are(
    m: int, n: int, k: int, threads: int, dtype: np.dtype, op: str
) -> None:
    a, b = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1)
    got = run(op, [a, b], (m, n), dtype, threads, b_col_maj=1)
    for row in {0, 1 % m, m // 2, m - 1}:
        assert_same_bits(got[row], run("GEMV", [b, a[row]], (n,), dtype))
    turned = np.ascontiguousarray(b.T)
    row_major = run(op, [a, turned], (m, n), dtype, threads)
    assert_same_bits(row_major[:1], run(op, [a[:1], turned], (1, n), dtype))


def test_a_product_sums_in_the_promised_order() -> None:
    # Few mantissa bits, so that float64 holds every product and sum exactly and rounds as fma does.
    m, n, k = 4, 6, 805
    grid = np.random.default_rng(3)
    a, b = (grid.integers(-255, 256, shape).astype(np.float32) / 64 for shape in ((m, k), (n, k)))
    a[:, ::7] *= np.float32(2.0**-9)
    lanes = np.zeros((m, n, 8), np.float32)
    wide_a, wide_b = (np.pad(x, ((0, 0), (0, -k % 8))) for x in (a, b))
    for at in range(0, k, 8):
        left, right = wide_a[:, None, at : at + 8], wide_b[None, :, at : at + 8]
        if cpu_path() != "portable":
            exact = left.astype(np.float64) * right.astype(np.float64) + lanes.astype(np.float64)
            lanes = exact.astype(np.float32)
        else:
            lanes = lanes + left * right
    four = lanes[..., :4] + lanes[..., 4:]
    expected = (four[..., 0] + four[..., 2]) + (four[..., 1] + four[..., 3])
    assert_same_bits(run("GEMM", [a, b], (m, n), F32, b_col_maj=1), expected)
    assert_same_bits(run("GEMV", [b, a[1]], (n,), F32), expected[1])
    # Eight bits of fraction are bfloat16's own.
    a, b, short = a.astype(BF16), b.astype(BF16), narrow(expected, BF16)
    assert_same_bits(run("GEMM", [a, b], (m, n), BF16, b_col_maj=1), short)
    assert_same_bits(run("GEMV", [b, a[1]], (n,), BF16), short[1])


@REAL
@pytest.mark.parametrize("op", ["GEMM", "ProjectionGEMM"])
@pytest.mark.parametrize("k", [1, 9, 24, 805])
def test_subnormal_numbers_are_no_zeros_in_a_product(k: int, op: str, dtype: np.dtype) -> None:
    # Powers of two and small integers: every product and every sum is exact.
    grid = np.random.default_rng(k)
    a, b = (grid.integers(-3, 4, shape).astype(np.float64) for shape in ((4, k), (19, k)))
    for powers in ((-133, 0), (0, -133), (-66, -67), (-130, 100), (100, -132)):
        left, right = np.ldexp(a, powers[0]), np.ldexp(b, powers[1])
        expected = narrow(left @ right.T, dtype)
        assert (wide(expected) != 0).any()
        left, right = left.astype(dtype), right.astype(dtype)
        assert_same_bits(run(op, [left, right], (4, 19), dtype, b_col_maj=1), expected)
        assert_same_bits(run("GEMV", [right, left[3]], (19,), dtype), expected[3])


def test_one_small_element_does_not_change_how_the_others_are_summed() -> None:
    # Of one row and of one block of K of one column alone the elements are too small for bfloat16's
    # own instruction, where there is one.
    a, b = normal(50, 1700, dtype=BF16), normal(40, 1700, dtype=BF16, seed=1)
    expected = run("GEMM", [a, b], (50, 40), BF16, b_col_maj=1)
    a[20, 5] = b[33, 1000] = np.float32(2.0**-130)
    got = run("GEMM", [a, b], (50, 40), BF16, b_col_maj=1)
    for row in (0, 19, 20, 21, 49):
        assert_same_bits(got[row], run("GEMV", [b, a[row]], (40,), BF16))
    same = np.ones(got.shape, bool)
    same[20], same[:, 33] = False, False
    assert_same_bits(got[same], expected[same])


@REAL
@pytest.mark.parametrize(
    ("epilogue", "formula"), [("gelu", gelu), ("silu", silu), ("sigmoid", logistic)]
)
def test_an_epilogue_works_on_the_float32_sums(
    epilogue: str, formula: Callable[[np.ndarray], np.ndarray], dtype: np.dtype
) -> None:
    a, b = normal(5, 40, dtype=dtype), normal(19, 40, dtype=dtype, seed=1)
    sums = run("GEMM", [wide(a), wide(b)], (5, 19), F32, b_col_maj=1)
    expected = narrow(formula(sums.astype(np.float64)), dtype)
    for rows in (1, 5):
        got = run(
            "ProjectionGEMM", [a[:rows], b], (rows, 19), dtype, b_col_maj=1, epilogue=epilogue
        )
        assert steps_apart(got, expected[:rows]) <= 1
    turned = np.ascontiguousarray(b.T)
    got = run("ProjectionGEMM", [a, turned], (5, 19), dtype, epilogue=epilogue)
    np.testing.assert_allclose(wide(got), wide(expected), rtol=2 * EPS[dtype], atol=1e-5)


@REAL
@pytest.mark.parametrize(
    "shapes",
    [
        ((7,), (7,)),
        ((7,), (7, 9)),
        ((5, 7), (7,)),
        ((2, 5, 7), (7, 19)),
        ((2, 5, 7), (1, 7, 19)),
        ((1, 5, 7), (3, 7, 19)),
        ((2, 1, 5, 7), (3, 7, 19)),
        ((3, 1, 7), (3, 7, 100)),
        ((4, 7), (2, 7, 19)),
        ((2, 0, 7), (2, 7, 19)),
        ((2, 5, 0), (2, 0, 19)),
        ((0, 5, 7), (7, 19)),
    ],
    ids=str,
)
def test_matmul_is_numpys(shapes: tuple[tuple[int, ...], ...], dtype: np.dtype) -> None:
    a, b = normal(*shapes[0], dtype=dtype), normal(*shapes[1], dtype=dtype, seed=1)
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    got = run("MatMul", [a, b], exact.shape, dtype)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=EPS[dtype] + 1e-6, atol=1e-6)


# -- attention --------------------------------------------------------------------------------


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Sequence[int], scale: float
) -> np.ndarray:
    """Attention in float64, row t over its first limits[t] keys."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    times, heads, _ = q.shape
    out = np.empty((times, heads, v.shape[2]))
    for t, h in itertools.product(range(times), range(heads)):
        g, seen = h // (heads // k.shape[1]), limits[t]
        weights = scipy.special.softmax(k[:seen, g] @ q[t, h] * scale)
        out[t, h] = weights @ v[:seen, g]
    return out


@REAL
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (9, 3), (5, 1)], ids=str)
@pytest.mark.parametrize("times", [1, 2, 5, 40])
def test_attention_is_float64s(times: int, heads: tuple[int, int], dtype: np.dtype) -> None:
    h, g = heads
    for s, d, dv, position, kv_rows in (
        (40, 8, 8, 0, None),
        (130, 20, 12, 80, 129),
        (300, 64, 64, 260, None),
        (300, 33, 70, 100, 128),
    ):
        q, k = normal(times, h, d, dtype=dtype), normal(s, g, d, dtype=dtype, seed=1)
        v = normal(s, g, dv, dtype=dtype, seed=2)
        bound = s if kv_rows is None else kv_rows
        limits = [min(bound, position + t + 1) for t in range(times)]
        # Keys and values past every limit may hold anything.
        k[max(limits) :], v[max(limits) :] = np.nan, np.inf
        rows = None if kv_rows is None else scalar(kv_rows)
        inputs = [q, k, v, scalar(position), rows]
        got = run("Attention", inputs, (times, h, dv), dtype, is_causal=1)
        expected = attend(q, k, v, limits, 1 / math.sqrt(d))
        np.testing.assert_allclose(
            got.astype(np.float64), expected, rtol=EPS[dtype] + 1e-5, atol=3e-6
        )


@REAL
def test_attention_without_a_mask_is_torchs(dtype: np.dtype) -> None:
    q, k, v = (
        normal(7, 6, 24, dtype=dtype),
        normal(50, 2, 24, dtype=dtype),
        normal(50, 2, 16, dtype=dtype),
    )
    exact = [torch.tensor(x.astype(np.float64)).transpose(0, 1) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*exact, scale=0.3, enable_gqa=True)
    got = run("Attention", [q, k, v], (7, 6, 16), dtype, scale=0.3)
    np.testing.assert_allclose(
        got.astype(np.float64), expected.transpose(0, 1).numpy(), rtol=EPS[dtype] + 1e-5, atol=2e-6
    )


@REAL
def test_a_row_of_attention_has_the_same_bits_alone(dtype: np.dtype) -> None:
    q, k, v = (normal(*s, dtype=dtype) for s in ((60, 6, 40), (300, 2, 40), (300, 2, 40)))
    all_rows = run("Attention", [q, k, v, scalar(230)], q.shape, dtype, 3, is_causal=1)
    for t in (0, 1, 24, 25, 26, 59):
        alone = run(
            "Attention", [q[t : t + 1], k, v, scalar(230 + t)], (1, 6, 40), dtype, is_causal=1
        )
        assert_same_bits(all_rows[t : t + 1], alone)
    few = run("Attention", [q[20:24], k, v, scalar(250)], (4, 6, 40), dtype, is_causal=1)
    assert_same_bits(all_rows[20:24], few)


@REAL
def test_a_row_of_attention_has_the_same_bits_alone_whatever_hides_its_keys(
    dtype: np.dtype,
) -> None:
    times, heads, keys = 70, 6, 300
    q, k, v = (normal(*s, dtype=dtype) for s in ((times, heads, 40), (keys, 2, 40), (keys, 2, 72)))
    mask = normal(heads, times, keys, seed=3) > -0.5
    bias = normal(1, times, keys, seed=4, dtype=dtype)
    slopes, sinks = normal(heads, seed=5), normal(heads, seed=6)
    shape = (times, heads, 72)
    how = {"is_causal": 1, "window": 150, "softcap": 3.0}
    inputs = [q, k, v, scalar(230), scalar(290), mask, bias, slopes, sinks]
    together = run("Attention", inputs, shape, dtype, 3, **how)
    for t in (0, 1, 35, 69):
        alone = [q[t : t + 1], k, v, scalar(230 + t), scalar(290), mask[:, t : t + 1]]
        alone += [bias[:, t : t + 1], slopes, sinks]
        assert_same_bits(
            together[t : t + 1], run("Attention", alone, (1, *shape[1:]), dtype, **how)
        )


@REAL
@pytest.mark.parametrize("times", [2, 30])
def test_attention_of_a_batch_has_each_sequences_bits(times: int, dtype: np.dtype) -> None:
    q, k = normal(3, times, 4, 24, dtype=dtype), normal(3, 140, 2, 24, dtype=dtype, seed=1)
    v = normal(3, 140, 2, 16, dtype=dtype, seed=2)
    places, bounds = np.array([0, 99, 110], np.int32), np.array([140, 100, 111], np.int32)
    shape = (times, 4, 16)
    together = run("Attention", [q, k, v, places, bounds], (3, *shape), dtype, 2, is_causal=1)
    for b in range(3):
        one = [q[b], k[b], v[b], places[b : b + 1], bounds[b : b + 1]]
        assert_same_bits(together[b], run("Attention", one, shape, dtype, is_causal=1))


@REAL
@pytest.mark.parametrize("times", [2, 30])
def test_attention_of_heads_first_has_the_bits_of_rows_first(times: int, dtype: np.dtype) -> None:
    q, k = normal(2, times, 4, 24, dtype=dtype), normal(2, 140, 2, 24, dtype=dtype, seed=1)
    v, shape = normal(2, 140, 2, 16, dtype=dtype, seed=2), (2, times, 4, 16)
    expected = run("Attention", [q, k, v], shape, dtype)
    tq, tk, tv = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v))
    got = run("Attention", [q, tk, tv], shape, dtype, cache_heads_first=1)
    assert_same_bits(got, expected)
    turned = {"query_heads_first": 1, "cache_heads_first": 1}
    got = run("Attention", [tq, tk, tv], (2, 4, times, 16), dtype, **turned)
    assert_same_bits(np.ascontiguousarray(got.transpose(0, 2, 1, 3)), expected)


def test_a_key_that_is_masked_by_minus_infinity_weighs_nothing() -> None:
    q, k, v = np.ones((1, 1, 1), F32), np.zeros((300, 1, 1), F32), normal(300, 1, 1)
    k[:256] = -np.inf
    got = run("Attention", [q, k, v], (1, 1, 1), F32)
    np.testing.assert_allclose(got[0, 0], v[256:, 0].mean(0), rtol=1e-5)
    k[:] = -np.inf
    assert np.isnan(run("Attention", [q, k, v], (1, 1, 1), F32)).all()
