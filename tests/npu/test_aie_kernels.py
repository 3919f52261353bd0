"""The NPU's kernels, compiled for the host, against the operators' references.

A distance is in units of the last place of bfloat16, subnormal numbers counted as zero. Each test
records the worst it measured as the property ``worst_ulp``.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array
from onnx_iron.kernels.aie import build
from onnx_iron.kernels.aie.build import Generation
from onnx_iron.kernels.aie.library import KernelLibrary, aligned, aligned_copy, load
from onnx_iron.operators.arithmetic import Add, Div, Mul, Sub
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.gemm import GEMM, Epilogue, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU, silu
from onnx_iron.operators.softmax import Softmax

Report = Callable[[str, object], None]


@pytest.fixture(params=list(Generation))
def kernels(request: pytest.FixtureRequest) -> KernelLibrary:
    return load(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def numbers(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return aligned_copy((rng.standard_normal(shape) * scale).astype(BFLOAT16))


def every_bfloat16() -> Array:
    return aligned_copy(np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16))


def flushed(x: Array) -> Array:
    """Subnormal numbers as zero of their sign, as the cores take and give them."""
    bits = x.view(np.uint16)
    return np.where((bits & 0x7F80) == 0, bits & 0x8000, bits).astype(np.uint16).view(BFLOAT16)


def distances(y: Array, reference: Array) -> Array:
    """How many bfloat16 numbers lie between; NaN is at NaN's place."""

    def places(x: Array) -> Array:
        bits = flushed(x).view(np.uint16).astype(np.int64)
        magnitude = np.minimum(bits & 0x7FFF, 0x7F81)
        return np.where(bits & 0x8000, -magnitude, magnitude)

    apart = np.abs(places(y) - places(reference))
    both_nan = np.isnan(y.astype(np.float32)) & np.isnan(reference.astype(np.float32))
    return np.asarray(np.where(both_nan, 0, apart))


def worst(report: Report, y: Array, reference: Array) -> int:
    found = int(distances(y, reference).max(initial=0))
    report("worst_ulp", found)
    return found


# -- elementwise --------------------------------------------------------------------------------

ARITHMETIC = [(Add(), "add", 0), (Sub(), "sub", 0), (Mul(), "mul", 0), (Div(), "div", 1)]


@pytest.mark.parametrize(("op", "name", "bound"), ARITHMETIC, ids=lambda v: str(v))
def test_arithmetic_of_all_pairs_of_extremes_and_of_random_bits(
    kernels: KernelLibrary,
    rng: np.random.Generator,
    record_property: Report,
    op: Any,
    name: str,
    bound: int,
) -> None:
    edges = np.array(
        [
            0,
            -0.0,
            1,
            -1,
            3,
            2.0**-126,
            2.0**127,
            -(2.0**127),
            3.38e38,
            1e-30,
            np.inf,
            -np.inf,
            np.nan,
        ]
    ).astype(BFLOAT16)
    pairs = np.stack(np.meshgrid(edges, edges)).reshape(2, -1)
    random = rng.integers(0, 1 << 16, (2, (1 << 16) - pairs.shape[1]), np.uint16).view(BFLOAT16)
    a, b = (aligned_copy(flushed(x)) for x in np.concatenate([pairs, random], axis=1))
    y = aligned(a.shape)
    kernels.call(f"{name}_bf16", a, b, y, a.size)
    assert worst(record_property, y, op.reference(a, b)) <= bound


@pytest.mark.parametrize(("op", "name", "bound"), ARITHMETIC, ids=lambda v: str(v))
def test_arithmetic_with_a_row_and_with_a_number(
    kernels: KernelLibrary, rng: np.random.Generator, op: Any, name: str, bound: int
) -> None:
    a, row, y = numbers(rng, 5, 96), numbers(rng, 96), aligned((5, 96))
    ordered = name in ("sub", "div")
    kernels.call(f"{name}_row_bf16", a, row, y, 5, 96)
    assert distances(y, op.reference(a, row)).max() <= bound
    if ordered:
        kernels.call(f"row_{name}_bf16", a, row, y, 5, 96)
        assert distances(y, op.reference(row, a)).max() <= bound

    number = np.array(-1.375, BFLOAT16)
    kernels.call(f"{name}_number_bf16", a, y, a.size, -1.375)
    assert distances(y, op.reference(a, number)).max() <= bound
    if ordered:
        kernels.call(f"number_{name}_bf16", a, y, a.size, -1.375)
        assert distances(y, op.reference(number, a)).max() <= bound


def exact_gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * np.vectorize(math.erfc)(-x / math.sqrt(2)))


def exact_gelu_tanh(x: Array) -> Array:
    u = np.clip(x, -1e3, 1e3)
    return np.asarray(x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))))


@pytest.mark.parametrize(
    ("op", "name", "exact"),
    [
        (SiLU(), "silu_bf16", silu),
        (GELU(), "gelu_bf16", exact_gelu),
        (GELU(approximate="tanh"), "gelu_tanh_bf16", exact_gelu_tanh),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_activations_of_every_bfloat16(
    kernels: KernelLibrary,
    record_property: Report,
    op: Any,
    name: str,
    exact: Callable[[Array], Array],
) -> None:
    x = every_bfloat16()
    y = aligned(x.shape)
    kernels.call(name, x, y, x.size)
    with np.errstate(all="ignore"):  # NaN that signal, exponentials that overflow
        wide = flushed(x).astype(np.float64)
        expected = exact(wide).astype(np.float32).astype(BFLOAT16)
        # 1 + erf(x) and 1 + tanh(x) of the reference have no digits left where they are tiny.
        known = ~(np.abs(expected.astype(np.float64)) < 1e-12)
        reference = op.reference(flushed(x))
        tiny = np.abs(expected.astype(np.float64)) < 2.0**-118
    assert distances(y[known], reference[known]).max() <= 1
    assert (np.abs(y[tiny].astype(np.float32)) < 2.0**-117).all()
    assert worst(record_property, y[~tiny], expected[~tiny]) <= 1


# -- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("op", "name", "bound"),
    [(RMSNorm(epsilon=1e-5), "rms_norm", 1), (LayerNorm(epsilon=1e-5), "layer_norm", 1)],
    ids=lambda v: str(v),
)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_norms(
    kernels: KernelLibrary,
    rng: np.random.Generator,
    record_property: Report,
    op: Any,
    name: str,
    bound: int,
    weighted: bool,
    scale: float,
) -> None:
    rows, n = 40, 1120
    x, weight, y = numbers(rng, rows, n, scale=scale), numbers(rng, n), aligned((rows, n))
    if weighted:
        kernels.call(f"{name}_weighted_bf16", x, weight, y, rows, n, op.epsilon)
        reference = op.reference(x, weight)
    else:
        kernels.call(f"{name}_bf16", x, y, rows, n, op.epsilon)
        reference = op.reference(x)
    near = np.abs(reference.astype(np.float32)) < 1e-5  # LayerNorm's mean cancels there
    if name == "layer_norm":
        assert (
            np.abs(y.astype(np.float32) - reference.astype(np.float32))[near].max(initial=0) <= 1e-6
        )
        y, reference = y[~near], reference[~near]
    assert worst(record_property, y, reference) <= bound


def test_rms_norm_of_a_row_with_infinity_nan_and_of_zeros(kernels: KernelLibrary) -> None:
    x = aligned((3, 64))
    x[...] = np.ones(64)
    x[0, 5], x[1, 7], x[2] = np.inf, np.nan, 0
    y = aligned(x.shape)
    kernels.call("rms_norm_bf16", x, y, 3, 64, 1e-5)
    with np.errstate(invalid="ignore"):
        reference = RMSNorm().reference(x)
    assert distances(y, reference).max() == 0


@pytest.mark.parametrize("n", [32, 96, 2048])
def test_softmax(
    kernels: KernelLibrary, rng: np.random.Generator, record_property: Report, n: int
) -> None:
    x, y = numbers(rng, 16, n, scale=8.0), aligned((16, n))
    x[0, : n // 2] = -np.inf
    x[1] = 3
    kernels.call("softmax_bf16", x, y, 16, n)
    assert worst(record_property, y, Softmax().reference(x)) <= 1
    assert (y[0, : n // 2] == 0).all()


def test_softmax_of_rows_with_nan_and_of_minus_infinity(kernels: KernelLibrary) -> None:
    x, y = aligned((3, 32)), aligned((3, 32))
    x[...] = np.arange(32)
    x[0, 9], x[1], x[2, 4] = np.nan, -np.inf, np.inf
    kernels.call("softmax_bf16", x, y, 3, 32)
    assert np.isnan(y.astype(np.float32)).all()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128])
def test_rope_is_exact(
    kernels: KernelLibrary, rng: np.random.Generator, interleaved: bool, head_dim: int
) -> None:
    x, y = numbers(rng, 6, head_dim), aligned((6, head_dim))
    turns = rng.uniform(-np.pi, np.pi, head_dim // 2)
    angles = aligned_copy(
        np.stack([np.cos(turns), np.sin(turns)], axis=1).reshape(1, -1).astype(BFLOAT16)
    )
    name = "rope_interleaved_bf16" if interleaved else "rope_bf16"
    kernels.call(name, x, angles, y, 6, head_dim)
    assert distances(y, RoPE(interleaved=interleaved).reference(x, angles)).max() == 0


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
    found = 0
    for tile in (1, 4, 5, 12):
        for rows in (None, 0, 1, 7, 12):
            y, new_state = convolve(kernels, x, taps, state, bias, rows, silu, tile)
            expected, expected_state = op.reference(x, taps, state, bias, rows)
            assert (new_state.view(np.uint16) == expected_state.view(np.uint16)).all()
            found = max(found, int(distances(y, expected).max()))
    record_property("worst_ulp", found)
    assert found <= (1 if silu else 0)


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


# -- products -----------------------------------------------------------------------------------


def close(y: Array, reference: Array, absolute: float, relative: float) -> bool:
    """The customary tolerance of NPU kernels: relative to both operands' magnitudes."""
    a, b = y.astype(np.float64), reference.astype(np.float64)
    return bool((np.abs(a - b) <= np.maximum(absolute, relative * (np.abs(a) + np.abs(b)))).all())


@pytest.mark.parametrize(("k", "tile"), [(64, 64), (576, 64), (2048, 512)])
def test_gemv(
    kernels: KernelLibrary, rng: np.random.Generator, record_property: Report, k: int, tile: int
) -> None:
    weight, x, y = numbers(rng, 16, k, scale=k**-0.5), numbers(rng, k), aligned(16)
    sums = aligned(16 * kernels.generation.lanes, FLOAT32)
    kernels.call("gemv_start_bf16", sums)
    for first in range(0, k, tile):
        part = aligned_copy(weight[:, first : first + tile])
        kernels.call("gemv_bf16", part, x, sums, tile, first)
    kernels.call("gemv_finish_bf16", sums, y)
    reference = GEMV().reference(weight, x)
    worst(record_property, y, reference)
    assert close(y, reference, 1e-6, 2.0**-8)


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
    reference = op.reference(a, b)
    worst(record_property, unblocked(y, m, n), reference)
    assert close(unblocked(y, m, n), reference, 1e-6, 2.0**-8)
    if epilogue is Epilogue.NONE:
        assert (GEMM(b_col_maj=b_col_maj).reference(a, b) == reference).all()


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
    reference = Attention(is_causal=True).reference(
        query, key[:, None], value[:, None], position=position
    )
    worst(record_property, y, reference)
    assert close(y, reference, 1e-4, 2.0**-8)


def test_attention_reads_nothing_past_its_limit(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    key, value, query = numbers(rng, 40, 32), numbers(rng, 40, 32), numbers(rng, 1, 4, 32)
    key[21:], value[21:] = np.nan, np.nan
    y = attend(kernels, query, key, value, 16, kv_rows=21, scale=0.25)
    reference = Attention(scale=0.25).reference(query, key[:, None], value[:, None], kv_rows=21)
    assert close(y, reference, 1e-4, 2.0**-8)


def test_attention_carries_nan_and_large_scores(
    kernels: KernelLibrary, rng: np.random.Generator
) -> None:
    key, value, query = numbers(rng, 20, 32), numbers(rng, 20, 32), numbers(rng, 1, 2, 32)
    query[0, 1] *= 1000
    y = attend(kernels, query, key, value, 16, scale=1.0)
    reference = Attention(scale=1.0).reference(query, key[:, None], value[:, None])
    assert close(y, reference, 1e-4, 2.0**-8)
    key[3, 0] = np.nan
    assert np.isnan(attend(kernels, query, key, value, 16, scale=1.0).astype(np.float32)).all()


# -- in place, and any shape --------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 6), vectors=st.integers(1, 8), seed=st.integers(0, 1 << 16))
@pytest.mark.parametrize("generation", list(Generation))
def test_a_kernel_may_write_over_its_input(
    generation: Generation, rows: int, vectors: int, seed: int
) -> None:
    kernels, n = load(generation), vectors * 32
    x = numbers(np.random.default_rng(seed), rows, n)
    for name, extra in {
        "silu_bf16": (rows * n,),
        "softmax_bf16": (rows, n),
        "rms_norm_bf16": (rows, n, 1e-5),
        "layer_norm_bf16": (rows, n, 1e-5),
    }.items():
        apart, over = aligned(x.shape), aligned_copy(x)
        kernels.call(name, x, apart, *extra)
        kernels.call(name, over, over, *extra)
        assert (apart.view(np.uint16) == over.view(np.uint16)).all()


# -- the host model -----------------------------------------------------------------------------


def test_a_row_length_that_is_no_whole_number_of_vectors_is_caught(
    kernels: KernelLibrary,
) -> None:
    x, y = aligned((3, 40)), aligned((3, 40))
    with pytest.raises(ValueError, match=r"softmax_bf16: a .* is no multiple of|a load of"):
        kernels.call("softmax_bf16", x, y, 3, 40)


def test_an_address_that_is_not_aligned_is_caught() -> None:
    x, y = aligned(72)[8:], aligned(64)
    with pytest.raises(ValueError, match="64 bytes at an address that is no multiple of 64"):
        load(Generation.AIE2P).call("silu_bf16", x, y, 64)
    with pytest.raises(ValueError, match="32 bytes at an address that is no multiple of 32"):
        load(Generation.AIE2).call("silu_bf16", x, y, 64)


def test_an_access_past_the_end_is_caught(kernels: KernelLibrary) -> None:
    with pytest.raises(ValueError, match=r"a load outside the buffers|a load of"):
        kernels.call("silu_bf16", aligned(64), aligned(128), 128)


def test_wrong_arguments_are_refused(kernels: KernelLibrary) -> None:
    x = aligned(64)
    with pytest.raises(TypeError, match="silu_bf16 takes 3 arguments, not 2"):
        kernels.call("silu_bf16", x, x)
    with pytest.raises(TypeError, match="is no array of bfloat16"):
        kernels.call("silu_bf16", x, aligned(64, FLOAT32), 64)


HOST_PROGRAM = """
#include <aie_api/aie.hpp>
#include <cstdio>
int main() {
  const auto x = aie::broadcast<float, 16>(-1.00390625f * 1.0005f);
  const auto floored = aie::accum<accfloat, 16>(x).to_vector<bfloat16>();
  aie::set_rounding(aie::rounding_mode::conv_even);
  const auto nearest = aie::accum<accfloat, 16>(x).to_vector<bfloat16>();
  std::printf("%04x %04x\\n", floored.get(0).bits(), nearest.get(0).bits());
  const auto tiny = aie::broadcast<float, 16>(0x1p-70f);
  std::printf("%g\\n", aie::mul(tiny, tiny).to_vector<float>().get(0));
  %s
}
"""


def compile_host(folder: Path, extra: str) -> subprocess.CompletedProcess[str]:
    source = folder / "program.cc"
    source.write_text(HOST_PROGRAM.replace("%s", extra))
    include = Path(build.__file__).parent / "host"
    command = ["g++", "-std=c++20", "-D__AIE_ARCH__=21", f"-I{include}", str(source)]
    command += ["-o", str(folder / "program")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_model_floors_until_told_otherwise_and_flushes_subnormals(tmp_path: Path) -> None:
    assert compile_host(tmp_path, "").returncode == 0
    ran = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["bf81", "bf81", "0"]


@pytest.mark.parametrize(
    "outside",
    [
        "aie::tanh<bfloat16>(tiny);",
        "aie::vector<float, 12> odd;",
        "bfloat16 rounded = 1.5f;",
        "aie::mmul<8, 8, 8, bfloat16, bfloat16> larger;",
    ],
)
def test_what_the_subset_leaves_out_does_not_compile(tmp_path: Path, outside: str) -> None:
    assert compile_host(tmp_path, outside).returncode != 0


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("ONNX_IRON_CACHE", str(tmp_path))
    build.kernel_library.cache_clear()
    with pytest.raises(RuntimeError, match="'no-such-compiler' is not on PATH; install g"):
        build.kernel_library(Generation.AIE2)
    build.kernel_library.cache_clear()


def test_kernels_use_the_public_names_of_aie_api_only() -> None:
    folder = Path(build.__file__).parent
    for source in (*folder.glob("*.cc"), *folder.glob("*.h")):
        text = source.read_text()
        for private in ("aie::host", ".lane", "from_bits", ".bits()"):
            assert private not in text, source.name


def test_every_kernel_is_entered_once_and_named_by_dtype(kernels: KernelLibrary) -> None:
    assert all(name.endswith("_bf16") for name in kernels.signatures)
    sources = "".join(p.read_text() for p in Path(build.__file__).parent.glob("*.cc"))
    assert sources.count("ONNX_IRON_KERNEL(") == len(kernels.signatures)
