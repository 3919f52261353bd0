"""AIE kernels of products and attention, compiled for the host, against the operators' oracles."""

from __future__ import annotations

import numpy as np
import pytest
from aie_arrays import every_bfloat16, numbers
from exactness import Report, exact, flushed, hold, not_flushed

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array
from onnx_iron.kernels.aie.library import KernelLibrary, aligned, aligned_copy
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.gemm import Epilogue, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV

# -- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "tile"), [(64, 64), (576, 64), (2048, 512)])
def test_gemv(
    kernels: KernelLibrary, rng: np.random.Generator, record_property: Report, k: int, tile: int
) -> None:
    rows = 22
    weight, x, y = numbers(rng, rows, k, scale=k**-0.5), numbers(rng, k), aligned(rows)
    sums = aligned(rows * kernels.generation.lanes, FLOAT32)
    kernels.call("gemv_start_bf16", sums, rows)
    for row, height in ((0, 4), (4, 1), (5, rows - 5)):
        for first in range(0, k, tile):
            part = aligned_copy(weight[row : row + height, first : first + tile])
            kernels.call("gemv_bf16", part, x, sums, height, tile, row, first)
    kernels.call("gemv_finish_bf16", sums, y, rows)
    hold(GEMV(), y, weight, x, report=record_property)


def blocked(matrix: Array, rows: int, columns: int) -> Array:
    """A matrix in blocks, each block's elements side by side."""
    m, n = matrix.shape
    blocks = matrix.reshape(m // rows, rows, n // columns, columns).transpose(0, 2, 1, 3)
    return aligned_copy(np.ascontiguousarray(blocks).reshape(-1))


def unblocked(blocks: Array, m: int, n: int) -> Array:
    return blocks.reshape(m // 4, n // 8, 4, 8).transpose(0, 2, 1, 3).reshape(m, n)


@pytest.mark.parametrize("epilogue", list(Epilogue))
@pytest.mark.parametrize("b_col_maj", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (4, 16, 8), (32, 24, 40)])
def test_gemm_over_tiles_of_k(
    kernels: KernelLibrary,
    rng: np.random.Generator,
    record_property: Report,
    m: int,
    n: int,
    k: int,
    b_col_maj: bool,
    epilogue: Epilogue,
) -> None:
    steps = 3
    a = numbers(rng, m, steps * k)
    b = numbers(rng, *((n, steps * k) if b_col_maj else (steps * k, n)), scale=(steps * k) ** -0.5)
    sums, y = aligned(m * n, FLOAT32), aligned(m * n)
    kernels.call("gemm_start_bf16", sums, m * n)
    for first in range(0, steps * k, k):
        part_a = blocked(a[:, first : first + k], 4, 8)
        part_b = b[:, first : first + k] if b_col_maj else b[first : first + k]
        name = "gemm_b_col_maj_bf16" if b_col_maj else "gemm_bf16"
        kernels.call(name, part_a, blocked(part_b, 8, 8), sums, m, n, k)
    suffix = "" if epilogue is Epilogue.NONE else f"_{epilogue}"
    kernels.call(f"gemm_finish{suffix}_bf16", sums, y, m * n)
    op = ProjectionGEMM(b_col_maj=b_col_maj, epilogue_modes=(epilogue,))
    hold(op, unblocked(y, m, n), a, b, report=record_property)


@pytest.mark.parametrize("epilogue", [mode for mode in Epilogue if mode is not Epilogue.NONE])
def test_an_epilogue_of_every_bfloat16(
    kernels: KernelLibrary, record_property: Report, epilogue: Epilogue
) -> None:
    x = aligned_copy(flushed(every_bfloat16()))
    sums, y = aligned_copy(x.astype(FLOAT32)), aligned(x.shape)
    kernels.call(f"gemm_finish_{epilogue}_bf16", sums, y, x.size)
    one = np.ones((1, 1), BFLOAT16)
    op = ProjectionGEMM(epilogue_modes=(epilogue,))
    large = not_flushed(y, exact(op, x[:, None], one)[0][:, 0], 2.0**-118)
    hold(op, y[large, None], x[large, None], one, report=record_property)


# -- attention ----------------------------------------------------------------------------------

CAUSAL, POSITION, KV_ROWS = 1, 2, 4


def attend(
    kernels: KernelLibrary,
    query: Array,
    key: Array,
    value: Array,
    tile: int,
    *,
    causal: bool = False,
    position: int | None = None,
    kv_rows: int | None = None,
    scale: float,
) -> Array:
    """One key head: query (T, H, D), key (S, D), value (S, Dv)."""
    (length, heads, dim), (entries, value_dim) = query.shape, value.shape
    rows = length * heads
    words = [w for w in (position, kv_rows) if w is not None]
    flags = (CAUSAL if causal else 0) | (POSITION if position is not None else 0)
    flags |= KV_ROWS if kv_rows is not None else 0
    packed = np.concatenate([query.reshape(-1), np.array(words, np.int32).view(BFLOAT16)])
    asked, state = aligned_copy(packed), aligned(rows * value_dim + 2 * rows, FLOAT32)
    y = aligned((length, heads, value_dim))
    kernels.call("attention_start_bf16", state, rows, value_dim)
    for due in range(0, entries, tile):
        first = min(due, entries - tile)
        part = [c[first : first + tile].reshape(-1) for c in (key, value)]
        kernels.call(
            "attention_bf16",
            asked,
            aligned_copy(np.concatenate(part)),
            state,
            rows,
            heads,
            dim,
            value_dim,
            tile,
            first,
            due,
            entries,
            0,
            flags,
            scale,
        )
    kernels.call("attention_finish_bf16", state, y, rows, value_dim)
    return y


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("tile", [16, 24, 37])
@pytest.mark.parametrize("position", [0, 15, 16, 36])
def test_attention_over_tiles_of_the_cache(
    kernels: KernelLibrary,
    rng: np.random.Generator,
    record_property: Report,
    length: int,
    tile: int,
    position: int,
) -> None:
    key, value = numbers(rng, 37, 64), numbers(rng, 37, 96)
    query = numbers(rng, length, 4, 64, scale=3.0)
    y = attend(kernels, query, key, value, tile, causal=True, position=position, scale=64**-0.5)
    op = Attention(is_causal=True)
    hold(op, y, query, key[:, None], value[:, None], position, report=record_property)


def test_attention_reads_nothing_past_its_limit(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    key, value, query = numbers(rng, 40, 32), numbers(rng, 40, 32), numbers(rng, 1, 4, 32)
    key[21:], value[21:] = np.nan, np.nan
    y = attend(kernels, query, key, value, 16, kv_rows=21, scale=0.25)
    seen = [np.where(np.isnan(c.astype(np.float32)), 0, c)[:, None] for c in (key, value)]
    hold(Attention(scale=0.25), y, query, *(c.astype(BFLOAT16) for c in seen), None, 21)


def test_attention_carries_nan_and_large_scores(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    key, value, query = numbers(rng, 20, 32), numbers(rng, 20, 32), numbers(rng, 1, 2, 32)
    query[0, 1] *= 1000
    y = attend(kernels, query, key, value, 16, scale=1.0)
    hold(Attention(scale=1.0), y, query, key[:, None], value[:, None])
    key[3, 0] = np.nan
    assert np.isnan(attend(kernels, query, key, value, 16, scale=1.0).astype(np.float32)).all()


@pytest.mark.parametrize("hidden", [[3], [0], [0, 1, 2, 19], list(range(16)), list(range(1, 20))])
def test_attention_gives_no_weight_to_keys_of_minus_infinity(
    kernels: KernelLibrary, rng: np.random.Generator, hidden: list[int]
) -> None:
    key, value, query = numbers(rng, 20, 32), numbers(rng, 20, 32), numbers(rng, 1, 2, 32)
    query[..., 0], key[hidden, 0] = 1, -np.inf
    for tile in (16, 20):
        y = attend(kernels, query, key, value, tile, scale=0.25)
        hold(Attention(scale=0.25), y, query, key[:, None], value[:, None])


def test_attention_to_nothing_but_minus_infinity_and_to_infinity_is_nan(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    key, value, query = numbers(rng, 20, 32), numbers(rng, 20, 32), numbers(rng, 1, 2, 32)
    query[..., 0] = 1
    for seen in (slice(None), slice(17, 18)):
        key[seen, 0] = -np.inf if seen == slice(None) else np.inf
        y = attend(kernels, query, key, value, 16, scale=0.25)
        hold(Attention(scale=0.25), y, query, key[:, None], value[:, None])


def test_attention_keeps_infinite_values_when_a_later_score_is_higher(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    """The sums are scaled down at each tile with a higher score, and in the end."""
    key, value, query = numbers(rng, 48, 32), numbers(rng, 48, 32), numbers(rng, 1, 2, 32)
    key[:, 0], query[..., 0] = np.linspace(-2, 2, 48), 8
    value[2, 3], value[3, 4], value[30, 5], value[40, 3] = np.inf, -np.inf, np.nan, np.inf
    value[5, 6], value[44, 6] = np.inf, -np.inf
    for tile in (16, 24, 48):
        y = attend(kernels, query, key, value, tile, scale=0.125)
        hold(Attention(scale=0.125), y, query, key[:, None], value[:, None])
        assert (y[..., 3] == np.inf).all()
        assert (y[..., 4] == -np.inf).all()
        assert np.isnan(y[..., 5:7].astype(np.float32)).all()
