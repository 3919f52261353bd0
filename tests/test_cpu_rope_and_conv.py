"""The CPU kernels of RoPE and CausalConv1d."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import scipy.special
from cpu_kernels import (
    BF16,
    F32,
    REAL,
    assert_same_bits,
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

from onnx_iron.kernels import run_kernel


@REAL
@pytest.mark.parametrize("angle_dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [2, 6, 14, 16, 18, 32, 46, 64, 128])
def test_rope_has_numpys_bits(
    width: int, interleaved: int, angle_dtype: np.dtype, dtype: np.dtype
) -> None:
    if dtype == F32 and angle_dtype == BF16:
        with pytest.raises(ValueError, match=r"^RoPE: angles is bfloat16, expected float32"):
            run("RoPE", [normal(2, 2), normal(1, 2, dtype=BF16)], (2, 2), F32)
        return
    x, angles = normal(6, width, dtype=dtype), normal(2, width, dtype=angle_dtype, seed=1)
    cos, sin = (np.repeat(wide(angles)[:, i::2], 3, axis=0) for i in (0, 1))
    half = width // 2
    one, two = (
        (np.s_[:, ::2], np.s_[:, 1::2]) if interleaved else (np.s_[:, :half], np.s_[:, half:])
    )
    expected, given = np.empty_like(wide(x)), wide(x)
    expected[one] = given[one] * cos - given[two] * sin
    expected[two] = given[two] * cos + given[one] * sin
    got = run("RoPE", [x, angles], x.shape, dtype, interleaved=interleaved)
    assert_same_bits(got, narrow(expected, dtype))
    run_kernel("RoPE", [x, angles], [x], {"interleaved": interleaved})
    assert_same_bits(x, got)


def convolve(
    x: np.ndarray, taps: np.ndarray, state: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """The float32 sums of a causal convolution, in the promised order."""
    window, length = wide(np.concatenate([state, x], -2)), x.shape[-2]
    total = window[..., :length, :] * wide(taps[0])
    for k in range(1, len(taps)):
        total = total + window[..., k : k + length, :] * wide(taps[k])
    return total if bias is None else total + wide(bias)


@REAL
@pytest.mark.parametrize("channels", [1, 7, 8, 19, 64])
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_causal_conv1d_has_numpys_bits(
    batch: tuple[int, ...], taps: int, channels: int, dtype: np.dtype
) -> None:
    weights, bias = normal(taps, channels, dtype=dtype), normal(channels, dtype=dtype)
    state = normal(*batch, taps - 1, channels, dtype=dtype, seed=1)
    for length in (0, 1, 2, 5, 12):
        x = normal(*batch, length, channels, dtype=dtype, seed=2)
        outputs = [(x.shape, dtype), (state.shape, dtype)]
        y, kept = run_kernel("CausalConv1d", [x, weights, state], outputs)
        assert_same_bits(y, narrow(convolve(x, weights, state, None), dtype))
        window = np.concatenate([state, x], -2)
        assert_same_bits(kept, window[..., length:, :])
        y, kept = run_kernel(
            "CausalConv1d", [x, weights, state, bias], outputs, {"activation": "silu"}
        )
        expected = narrow(silu(convolve(x, weights, state, bias).astype(np.float64)), dtype)
        assert steps_apart(y, expected) <= 1
        assert_same_bits(kept, window[..., length:, :])
        for rows in range(length + 1):
            y_bounded, kept = run_kernel(
                "CausalConv1d", [x, weights, state, None, scalar(rows)], outputs
            )
            assert_same_bits(kept, window[..., rows : rows + taps - 1, :])
            assert_same_bits(y_bounded, narrow(convolve(x, weights, state, None), dtype))


@settings(max_examples=30, deadline=None)
@given(
    chunks=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    taps=st.integers(1, 6),
    padding=st.integers(0, 3),
    threads=st.sampled_from([1, 3]),
    dtype=st.sampled_from([F32, BF16]),
)
def test_causal_conv1d_gives_the_same_bits_for_any_chunks_with_the_state_in_place(
    chunks: list[int], taps: int, padding: int, threads: int, dtype: np.dtype
) -> None:
    channels, length = 21, sum(chunks)
    x, weights = normal(length, channels, dtype=dtype), normal(taps, channels, dtype=dtype)
    first = normal(taps - 1, channels, dtype=dtype, seed=1)
    outputs = [(x.shape, dtype), (first.shape, dtype)]
    attributes = {"activation": "silu"}
    whole, last = run_kernel("CausalConv1d", [x, weights, first], outputs, attributes)
    state, parts, at = first.copy(), [], 0
    for rows in chunks:
        # What pads a chunk must not matter.
        chunk = np.full((rows + padding, channels), np.nan, dtype)
        chunk[:rows] = x[at : at + rows]
        given = [chunk, weights, state, None, scalar(rows)]
        y, _ = run_kernel("CausalConv1d", given, [(chunk.shape, dtype), state], attributes, threads)
        parts.append(y[:rows])
        at += rows
    assert_same_bits(np.concatenate(parts), whole)
    assert_same_bits(state, last)


def test_causal_conv1d_is_scipys_filter() -> None:
    x, taps = normal(200, 5), normal(4, 5)
    y, _ = run_kernel(
        "CausalConv1d", [x, taps, np.zeros((3, 5), F32)], [(x.shape, F32), ((3, 5), F32)]
    )
    for channel in range(5):
        expected = scipy.signal.lfilter(
            taps[::-1, channel].astype(np.float64), [1.0], x[:, channel]
        )
        np.testing.assert_allclose(y[:, channel], expected, atol=2e-6)
