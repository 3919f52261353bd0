"""AIE kernels of whole rows, compiled for the host, against the operators' oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aie_arrays import every_bfloat16, numbers
from exactness import Report, distances, exact, flushed, hold, not_flushed

from onnx_iron.conformance.rounding import rounded
from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.aie.library import KernelLibrary, aligned, aligned_copy
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.softmax import Softmax

# -- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", [RMSNorm(epsilon=1e-5), LayerNorm(epsilon=1e-5)], ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_norms(
    kernels: KernelLibrary,
    rng: np.random.Generator,
    record_property: Report,
    op: Any,
    weighted: bool,
    scale: float,
) -> None:
    rows, n = 40, 1120
    x, weight, y = numbers(rng, rows, n, scale=scale), numbers(rng, n), aligned((rows, n))
    if weighted:
        kernels.call(f"{op.stem}_weighted_bf16", x, weight, y, rows, n, op.epsilon)
        hold(op, y, x, weight, report=record_property)
    else:
        kernels.call(f"{op.stem}_bf16", x, y, rows, n, op.epsilon)
        hold(op, y, x, report=record_property)


def test_layer_norm_of_rows_that_are_far_from_zero(
    kernels: KernelLibrary, rng: np.random.Generator, record_property: Report
) -> None:
    x, y = numbers(rng, 8, 1120), aligned((8, 1120))
    x[...] = (x.astype(np.float32) + np.arange(-7, 9, 2)[:, None]).astype(x.dtype)
    kernels.call("layer_norm_bf16", x, y, 8, 1120, 1e-5)
    hold(LayerNorm(epsilon=1e-5), y, x, report=record_property)


def test_rms_norm_of_a_row_with_infinity_nan_and_of_zeros(kernels: KernelLibrary) -> None:
    x = aligned((3, 64))
    x[...] = np.ones(64)
    x[0, 5], x[1, 7], x[2] = np.inf, np.nan, 0
    y = aligned(x.shape)
    kernels.call("rms_norm_bf16", x, y, 3, 64, 1e-5)
    hold(RMSNorm(epsilon=1e-5), y, x)


@pytest.mark.parametrize("op", [RMSNorm(epsilon=0.0), LayerNorm(epsilon=0.0)], ids=str)
@pytest.mark.parametrize("power", [-58, -40, -20, 20, 40, 58])
def test_norms_of_rows_far_from_one(
    kernels: KernelLibrary, rng: np.random.Generator, op: Any, power: int
) -> None:
    x, y = numbers(rng, 8, 64, scale=2.0**power), aligned((8, 64))
    kernels.call(f"{op.stem}_bf16", x, y, 8, 64, 0.0)
    hold(op, y, x)


@pytest.mark.parametrize("op", [RMSNorm(epsilon=0.0), LayerNorm(epsilon=0.0)], ids=str)
def test_norms_of_zeros_without_epsilon_and_of_infinity_are_nan(
    kernels: KernelLibrary, op: Any
) -> None:
    x, y = aligned((3, 64)), aligned((3, 64))
    x[...], x[1, 9], x[2] = 1, np.nan, 0
    x[0] = np.inf
    kernels.call(f"{op.stem}_bf16", x, y, 3, 64, 0.0)
    hold(op, y, x)
    assert np.isnan(y.astype(np.float32)).all()


def test_softmax_of_zero_and_every_bfloat16(
    kernels: KernelLibrary, record_property: Report
) -> None:
    """So exp of each that is not positive, and of minus each that is."""
    x = aligned((1 << 16, 32))
    x[...] = -np.inf
    x[:, 0], x[:, 17] = 0, flushed(every_bfloat16())
    y = aligned(x.shape)
    kernels.call("softmax_bf16", x, y, *x.shape)
    wanted = exact(Softmax(), x)[0]
    y = np.where(not_flushed(y, wanted, 2.0**-118), y, wanted.astype(BFLOAT16))
    hold(Softmax(), y, x, report=record_property)


@pytest.mark.parametrize("seen", [slice(0, 1), slice(95, 96), slice(31, 33), slice(32, 64)])
def test_softmax_of_rows_that_a_mask_of_minus_infinity_leaves_little_of(
    kernels: KernelLibrary, rng: np.random.Generator, seen: slice
) -> None:
    x, y = numbers(rng, 4, 96, scale=8.0), aligned((4, 96))
    x[:, : seen.start], x[:, seen.stop :] = -np.inf, -np.inf
    kernels.call("softmax_bf16", x, y, 4, 96)
    hold(Softmax(), y, x)
    assert (y[:, : seen.start] == 0).all()
    assert (y[:, seen.stop :] == 0).all()


@pytest.mark.parametrize("n", [32, 96, 2048])
def test_softmax(
    kernels: KernelLibrary, rng: np.random.Generator, record_property: Report, n: int
) -> None:
    x, y = numbers(rng, 16, n, scale=8.0), aligned((16, n))
    x[0, : n // 2] = -np.inf
    x[1] = 3
    kernels.call("softmax_bf16", x, y, 16, n)
    hold(Softmax(), y, x, report=record_property)
    assert (y[0, : n // 2] == 0).all()


def test_softmax_of_rows_with_nan_and_of_minus_infinity(kernels: KernelLibrary) -> None:
    x, y = aligned((3, 32)), aligned((3, 32))
    x[...] = np.arange(32)
    x[0, 9], x[1], x[2, 4] = np.nan, -np.inf, np.inf
    kernels.call("softmax_bf16", x, y, 3, 32)
    assert np.isnan(y.astype(np.float32)).all()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128])
def test_rope(
    kernels: KernelLibrary, rng: np.random.Generator, interleaved: bool, head_dim: int
) -> None:
    x, y = numbers(rng, 6, head_dim), aligned((6, head_dim))
    turns = rng.uniform(-np.pi, np.pi, head_dim // 2)
    angles = aligned_copy(
        np.stack([np.cos(turns), np.sin(turns)], axis=1).reshape(1, -1).astype(BFLOAT16)
    )
    name = "rope_interleaved_bf16" if interleaved else "rope_bf16"
    kernels.call(name, x, angles, y, 6, head_dim)
    hold(RoPE(interleaved=interleaved), y, x, angles)


# -- convolution --------------------------------------------------------------------------------

BIAS, SILU, ROWS = 1, 2, 4


def convolve(
    kernels: KernelLibrary,
    x: Array,
    taps: Array,
    state: Array,
    bias: Array | None,
    rows: int | None,
    silu: bool,
    tile: int,
) -> tuple[Array, Array]:
    """The kernel over tiles of x's rows, as a core calls it."""
    total, channels = x.shape
    width = len(taps)
    flags = (BIAS if bias is not None else 0) | (SILU if silu else 0)
    parts = [taps, state] + ([bias] if bias is not None else [])
    packed = np.concatenate([part.reshape(-1) for part in parts])
    if rows is not None:
        flags |= ROWS
        packed = np.concatenate([packed, np.array([rows], np.int32).view(BFLOAT16)])
    parameters, window = aligned_copy(packed), aligned((width - 1 + tile, channels))
    y, new_state = aligned(x.shape), aligned(state.shape)
    part = aligned((tile, channels))
    for due in range(0, total, tile):
        first = min(due, total - tile)
        kernels.call(
            "causal_conv1d_bf16",
            aligned_copy(x[first : first + tile]),
            parameters,
            window,
            part,
            new_state,
            tile,
            channels,
            width,
            first,
            due,
            total,
            flags,
        )
        y[first : first + tile] = part
    return y, new_state


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_causal_conv1d_in_tiles_that_divide_the_rows_and_that_do_not(
    kernels: KernelLibrary,
    rng: np.random.Generator,
    record_property: Report,
    width: int,
    biased: bool,
    silu: bool,
) -> None:
    total, channels = 12, 64
    x, taps = numbers(rng, total, channels), numbers(rng, width, channels)
    state = numbers(rng, width - 1, channels)
    bias = numbers(rng, channels) if biased else None
    op = CausalConv1d(activation="silu" if silu else "none")
    for tile in (1, 4, 5, 12):
        for rows in (None, 0, 1, 7, 12):
            y, new_state = convolve(kernels, x, taps, state, bias, rows, silu, tile)
            hold(op, (y, new_state), x, taps, state, bias, rows, report=record_property)
            assert (
                distances(
                    new_state, rounded(exact(op, x, taps, state, bias, rows)[1], BFLOAT16)
                ).max()
                == 0
            )


def test_causal_conv1d_with_silu_of_every_bfloat16(
    kernels: KernelLibrary, record_property: Report
) -> None:
    x = flushed(every_bfloat16()).reshape(64, 1024)
    x[~np.isfinite(x)] = 0  # times a tap of 0 they are NaN
    taps, state = np.zeros((2, 1024), BFLOAT16), np.zeros((1, 1024), BFLOAT16)
    taps[1] = 1
    y, _ = convolve(kernels, x, taps, state, None, None, True, 64)
    op = CausalConv1d(activation="silu")
    wanted = exact(op, x, taps, state)[0]
    y = np.where(not_flushed(y, wanted, 2.0**-118), y, wanted.astype(BFLOAT16))
    hold(op, (y, x[-1:]), x, taps, state, report=record_property)


def test_causal_conv1d_step_by_step_equals_the_whole_sequence(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    x, taps, state = numbers(rng, 9, 32), numbers(rng, 4, 32), numbers(rng, 3, 32)
    whole, last = convolve(kernels, x, taps, state, None, None, True, 9)
    carried = state
    for t in range(9):
        y, carried = convolve(kernels, x[t : t + 1], taps, carried, None, None, True, 1)
        assert (y.view(np.uint16) == whole[t : t + 1].view(np.uint16)).all()
    assert (carried.view(np.uint16) == last.view(np.uint16)).all()
