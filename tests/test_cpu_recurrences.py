"""The CPU kernels of SelectiveScan and LinearAttention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from cpu_kernels import BF16, F32, assert_same_bits, normal, scalar
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.kernels import run_kernel

Run = Callable[..., list[np.ndarray]]


def selective_scan(length: int, dtype: np.dtype) -> tuple[Run, np.ndarray]:
    """A scan of 21 channels from row to row, and the state before it."""
    channels, states = 21, 11
    constants = -np.abs(normal(channels, states)), normal(channels), normal(channels, seed=1)
    x, dt = (normal(length, channels, dtype=dtype, seed=i) for i in (1, 2))
    b, c = (normal(length, states, dtype=dtype, seed=i) for i in (3, 4))

    def run(begin: int, rows: int, padding: int, state: np.ndarray, threads: int = 1) -> list:
        parts = [padded(part, begin, rows, padding) for part in (x, dt, b, c)]
        a, d, bias = constants
        given = [*parts[:2], a, *parts[2:], state, d, bias, scalar(rows)]
        outputs = [(parts[0].shape, dtype), state]
        return run_kernel("SelectiveScan", given, outputs, {"dt_softplus": 1}, threads)

    return run, normal(channels, states, seed=5)


def linear_attention(length: int, dtype: np.dtype) -> tuple[Run, np.ndarray]:
    """The gated delta rule of 2 heads, 43 columns each, from row to row, and the state before."""
    keys, values = 9, 43
    query = normal(length, 4, keys, dtype=dtype)
    key = normal(length, 2, keys, dtype=dtype, seed=1) * dtype.type(0.3)
    value = normal(length, 2, values, dtype=dtype, seed=2)
    decay = -np.abs(normal(length, 2, keys, seed=3))
    beta = normal(length, 2, dtype=dtype, seed=4)

    def run(begin: int, rows: int, padding: int, state: np.ndarray, threads: int = 1) -> list:
        given = [padded(x, begin, rows, padding) for x in (query, key, value, decay, beta)]
        outputs = [((rows + padding, 4, values), dtype), state]
        operands = [*given[:3], state, *given[3:], scalar(rows)]
        return run_kernel("LinearAttention", operands, outputs, {}, threads)

    return run, normal(2, keys, values, seed=5)


def padded(x: np.ndarray, begin: int, rows: int, padding: int) -> np.ndarray:
    """Some rows, and behind them what must not matter."""
    made = np.full((rows + padding, *x.shape[1:]), np.nan, x.dtype)
    made[:rows] = x[begin : begin + rows]
    return made


@settings(max_examples=30, deadline=None)
@given(
    chunks=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(sum),
    padding=st.integers(0, 3),
    threads=st.sampled_from([1, 3]),
    dtype=st.sampled_from([F32, BF16]),
    kind=st.sampled_from([selective_scan, linear_attention]),
)
def test_any_chunks_give_the_same_bits_with_the_state_in_place(
    chunks: Sequence[int],
    padding: int,
    threads: int,
    dtype: np.dtype,
    kind: Callable[[int, np.dtype], tuple[Run, np.ndarray]],
) -> None:
    run, first = kind(sum(chunks), dtype)
    last = first.copy()
    whole, _ = run(0, sum(chunks), 0, last)
    state, parts, at = first.copy(), [], 0
    for rows in chunks:
        if rows + padding:
            y, _ = run(at, rows, padding, state, threads)
            parts.append(y[:rows])
            assert not y[rows:].any()  # nor NaN: a row that doesn't count is 0
        at += rows
    assert_same_bits(np.concatenate(parts), whole)
    assert_same_bits(state, last)


@pytest.mark.parametrize("states", [1, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("channels", [1, 8, 13])
def test_a_selective_scan_of_any_size_is_float64_s(channels: int, states: int) -> None:
    length = 19
    a, h = -np.abs(normal(channels, states)), normal(channels, states, seed=1)
    x, dt = normal(length, channels, seed=2), normal(length, channels, seed=3)
    b, c = normal(length, states, seed=4), normal(length, states, seed=5)
    y, last = run_kernel(
        "SelectiveScan", [x, dt, a, b, c, h], [(x.shape, F32), (h.shape, F32)], {"dt_softplus": 1}
    )
    step = np.log1p(np.exp(dt.astype(np.float64)))
    kept, expected = h.astype(np.float64), []
    for t in range(length):
        kept = np.exp(step[t, :, None] * a) * kept + np.outer(step[t] * x[t], b[t])
        expected.append(kept @ c[t])
    # Each row rounds the state once more; decays are below 1, so that it is soon forgotten.
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(last, kept, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("values", [1, 8, 31, 32, 40, 65])
def test_a_delta_rule_of_any_width_is_float64_s(values: int) -> None:
    length, keys = 17, 6
    k = normal(length, 1, keys)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q, v, s = normal(length, 2, keys, seed=1), normal(length, 1, values), normal(1, keys, values)
    beta = np.abs(normal(length, 1, seed=2)) % 1
    y, last = run_kernel(
        "LinearAttention",
        [q, k, v, s, None, beta],
        [((length, 2, values), F32), (s.shape, F32)],
        {"scale": 0.5},
    )
    kept, expected = s[0].astype(np.float64), []
    for t in range(length):
        kept = kept + np.outer(k[t, 0], beta[t, 0] * (v[t, 0] - k[t, 0] @ kept))
        expected.append(0.5 * q[t] @ kept)
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=5e-6)
    np.testing.assert_allclose(last[0], kept, rtol=2e-5, atol=5e-6)


def test_empty_operands_are_no_fault() -> None:
    none = np.zeros((0, 4), F32)
    a, h = np.zeros((4, 3), F32), normal(4, 3)
    rows = np.zeros((0, 3), F32)
    y, last = run_kernel(
        "SelectiveScan", [none, none, a, rows, rows, h], [((0, 4), F32), ((4, 3), F32)]
    )
    assert y.size == 0
    assert_same_bits(last, h)
    # A state of no entries: what remains is d * x.
    x, d = normal(5, 4), normal(4, seed=1)
    empty = np.zeros((5, 0), F32)
    given = [x, x, np.zeros((4, 0), F32), empty, empty, np.zeros((4, 0), F32), d]
    y, _ = run_kernel("SelectiveScan", given, [((5, 4), F32), ((4, 0), F32)])
    np.testing.assert_array_equal(y, d * x)
    heads = normal(0, 2, 3)
    s = normal(2, 3, 5)
    given = [heads, heads, np.zeros((0, 2, 5), F32), s]
    _, last = run_kernel("LinearAttention", given, [((0, 2, 5), F32), ((2, 3, 5), F32)])
    assert_same_bits(last, s)
