"""causal_conv1d: any chunking of a sequence gives the same bits, those of a plain convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from compare import assert_close, assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Exported, Network, random
from scipy.signal import lfilter

from onnx_iron import Graph, Handle, Value, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, FLOATS, Array
from onnx_iron.operators.causal_conv1d import CausalConv1d

CHANNELS = 6
dtypes = pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in FLOATS])


@dataclass(frozen=True)
class Filter:
    """A filter, and how a sequence is cut for it."""

    taps: int = 3
    chunk: int = 4
    dtype: Any = FLOAT32
    bias: bool = False
    activation: str | None = None
    two_states: bool = False
    calls: tuple[int | None, ...] = ()  # the rows of a prompt chunk, or None for a decode step

    @property
    def rows(self) -> int:
        return sum(1 if n is None else n for n in self.calls)

    def weights(self) -> tuple[Array, Array | None]:
        bias = random(CHANNELS, dtype=self.dtype, seed=2) if self.bias else None
        return random(self.taps, CHANNELS, dtype=self.dtype, seed=1), bias

    def sequence(self) -> Array:
        return random(self.rows, CHANNELS, dtype=self.dtype)

    def graph(self, *, decompose: bool = False) -> Graph:
        """A prompt chunk where x has several rows, a decode step where it has one."""
        taps, bias = self.weights()
        conv = F.conv_state(self.taps, CHANNELS, self.chunk, self.dtype)
        if self.two_states:
            conv.write = state((self.taps - 1, CHANNELS), self.dtype)

        def body(graph: Any, x: Handle, *, n: Value) -> Handle:
            if x.shape[0] > 1:
                x = x[:n]
            if decompose:
                y: Handle = CausalConv1d.decompose(x, graph.taps, graph.conv)
                return y.copy()
            return F.causal_conv1d(x, graph.taps, graph.conv, bias=bias, activation=self.activation)

        return Network(body, taps=taps, conv=conv)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    chunk = draw(st.integers(2, 6))
    return Filter(
        draw(st.integers(1, 5)),
        chunk,
        draw(st.sampled_from(FLOATS)),
        draw(st.booleans()),
        draw(st.sampled_from([None, "silu"])),
        draw(st.booleans()),
        tuple(draw(st.lists(st.none() | st.integers(0, chunk), min_size=1, max_size=8))),
    )


def run(case: Filter, x: Array, **options: Any) -> tuple[Array, Array]:
    """The filtered sequence, call by call, and the rows carried at its end.

    What pads a chunk is NaN: it must reach no valid row and no state.
    """
    graph, results, at = case.graph(**options), [], 0
    states = graph.reference_states()
    for n in case.calls:
        rows = 1 if n is None else n
        given = x[at : at + 1]
        if n is not None:
            given = np.full((case.chunk, CHANNELS), np.nan, case.dtype)
            given[:n] = x[at : at + n]
        results.append(graph.reference(given, n=rows)[:rows])
        at += rows
        if case.two_states:
            states["conv.read"][...] = states["conv.write"]
    carried = states["conv.write" if case.two_states else "conv"]
    return np.concatenate(results), carried


def at_once(case: Filter, x: Array) -> Array:
    """The whole sequence in one call of the operator, from zero."""
    taps, bias = case.weights()
    op = CausalConv1d(activation=case.activation or "none")
    before = np.zeros((case.taps - 1, CHANNELS), case.dtype)
    return np.asarray(op.reference(x, taps, before, bias)[0])


def last_rows(case: Filter, x: Array) -> Array:
    """The K - 1 rows that end a sequence, zero where it has none."""
    padded = np.concatenate([np.zeros((case.taps - 1, CHANNELS), case.dtype), x])
    return padded[len(padded) - (case.taps - 1) :]


@settings(max_examples=150)
@given(filters())
def test_any_chunking_gives_the_same_bits(case: Filter) -> None:
    x = case.sequence()
    y, carried = run(case, x)
    assert_same_bits(y, at_once(case, x))
    # Inputs, never filtered or activated rows.
    assert_same_bits(carried, last_rows(case, x))


@settings(max_examples=80)
@given(filters())
def test_its_decomposition_gives_the_same(case: Filter) -> None:
    """The same bits in float32; in bfloat16 each of its 2 K - 1 steps rounds, by half of 2**-8 of
    what it gives, which is no more than the terms' absolute sum; the one operator rounds once.
    """
    case = replace(case, taps=max(case.taps, 2), bias=False, activation=None)
    x = case.sequence()
    y, carried = run(case, x)
    steps, steps_carried = run(case, x, decompose=True)
    assert_same_bits(steps_carried, carried)
    if case.dtype == FLOAT32:
        np.testing.assert_array_equal(steps, y)  # a sum that is zero may have the other sign
        return
    taps = np.abs(case.weights()[0].astype(np.float64))
    padded = np.concatenate([np.zeros((case.taps - 1, CHANNELS)), np.abs(x.astype(np.float64))])
    terms = sum(taps[k] * padded[k : k + len(x)] for k in range(case.taps))
    apart = np.abs(steps.astype(np.float64) - y.astype(np.float64))
    assert (apart <= 2 * case.taps * 2.0**-9 * 1.05 * terms).all()


def test_one_tap_carries_nothing() -> None:
    case = Filter(taps=1, calls=(3, None))
    x, (taps, _) = case.sequence(), case.weights()
    y, carried = run(case, x)
    assert carried.shape == (0, CHANNELS)
    assert_same_bits(y, x * taps)
    assert_same_bits(case.graph(decompose=True).reference(x, n=4), x * taps)
    assert_same_bits(case.graph(decompose=True).reference(x[:1], n=1), x[:1] * taps)


@settings(max_examples=30)
@given(filters())
def test_the_exported_model_gives_the_same(case: Filter) -> None:
    x, graph = case.sequence(), case.graph()
    chunk, step = (
        Exported(graph.trace(x=((rows, CHANNELS), case.dtype))) for rows in (case.chunk, 1)
    )
    results, at, states = [np.zeros((0, CHANNELS), np.float32)], 0, chunk.states
    for n in case.calls:
        model, rows = (step, 1) if n is None else (chunk, n)
        given = np.full((1 if n is None else case.chunk, CHANNELS), np.nan, np.float32)
        given[:rows] = x[at : at + rows]
        model.states = states
        results.append(model(x=given, n=rows)["output"][:rows])
        states, at = model.states, at + rows
        if case.two_states:
            states["conv.read"] = states["conv.write"]
    carried = states["conv.write" if case.two_states else "conv"]
    assert_same_bits(carried.astype(case.dtype), last_rows(case, x))
    y = np.concatenate(results).astype(case.dtype)
    exact = case.activation is None
    assert_close(y, at_once(case, x), ulp=0 if exact else 2, reason="exp of two libraries")


@dtypes
@pytest.mark.parametrize("taps", [1, 2, 4])
def test_it_is_scipy_s_filter_and_torch_s_convolution(taps: int, dtype: Any) -> None:
    case = Filter(taps, chunk=5, dtype=dtype, bias=True, calls=(5, None, 2, None, 0, 5))
    x, (w, b) = case.sequence(), case.weights()
    assert b is not None
    y, _ = run(case, x)
    wide, wide_x, wide_b = (a.astype(np.float64) for a in (w, x, b))
    expected = np.stack(
        [lfilter(wide[::-1, c], [1], wide_x[:, c]) + wide_b[c] for c in range(CHANNELS)], axis=1
    )
    tolerance = {"ulp": 1, "of_largest": 2**-22, "reason": "float32 sums"}
    assert_close(y, expected.astype(np.float32).astype(dtype), **tolerance)
    # torch's is a correlation, channels first, padded before by hand.
    torch_x = TF.pad(torch.from_numpy(wide_x.T.copy())[None], (taps - 1, 0))
    kernel = torch.from_numpy(wide.T.copy())[:, None]
    convolved = TF.conv1d(torch_x, kernel, torch.from_numpy(wide_b), groups=CHANNELS)
    assert_close(y, convolved[0].numpy().T.astype(np.float32).astype(dtype), **tolerance)


def test_silu_comes_last() -> None:
    plain, activated = (Filter(bias=True, activation=a, calls=(4, 4)) for a in (None, "silu"))
    y, _ = run(plain, plain.sequence())
    expected = TF.silu(torch.from_numpy(y)).numpy()
    result, carried = run(activated, plain.sequence())
    assert_close(result, expected, ulp=2, reason="exp of two libraries")
    assert_same_bits(carried, last_rows(plain, plain.sequence()))


def test_a_call_of_no_row_changes_nothing() -> None:
    case = Filter(taps=4, calls=(3, 0, 0))
    _, carried = run(case, case.sequence())
    assert_same_bits(carried, case.sequence())


def test_the_read_state_is_left_alone_where_the_write_state_is_another() -> None:
    case = Filter(two_states=True)
    graph, x = case.graph(), random(4, CHANNELS)
    read = random(2, CHANNELS, seed=5)
    graph.reference_states()["conv.read"] = read.copy()
    for _ in range(2):  # also from call to call
        graph.reference(x, n=1)
        assert_same_bits(graph.reference_states()["conv.read"], read)
        expected = np.concatenate([read[1:], x[:1]])
        assert_same_bits(graph.reference_states()["conv.write"], expected)


def test_a_row_may_be_bounded_too() -> None:
    case = Filter()
    taps, _ = case.weights()
    graph = Network(
        lambda self, x, *, n: F.causal_conv1d(x[:n], taps, self.conv),
        conv=F.conv_state(3, CHANNELS, 1, FLOAT32),
    )
    x = random(3, CHANNELS)
    for row, n in ((0, 1), (1, 0), (1, 1), (2, 1)):
        y = graph.reference(x[row : row + 1], n=n)
    assert_same_bits(y[0], at_once(case, x)[2])


def test_a_bound_past_the_chunk_is_an_error_at_the_call() -> None:
    for n in (-1, 5):
        with pytest.raises(ValueError, match=rf"CausalConv1d 'taps': n is {n}, expected 0..4"):
            Filter().graph().reference(random(4, CHANNELS), n=n)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((6,), {}, r"x \(6,\) is not \(rows, channels\) or \(B, rows, channels\)"),
        ((2, 2, 6), {}, r"x is \(2, 2, 6\), the state \(2, 6\); .* conv_state\(..., batch=B\)"),
        ((1, 5), {}, r"CausalConv1d.taps is \(3, 6\); x is \(1, 5\), so it must be \(K, 5\)"),
        ((1, 6), {"activation": "relu"}, "CausalConv1d.activation is 'relu'; expected 'none' or"),
        ((1, 6), {"bias": random(5)}, r"CausalConv1d.bias is \(5,\); x is \(1, 6\)"),
    ],
)
def test_what_it_does_not_take_is_refused(shape: Any, options: Any, message: str) -> None:
    taps = random(3, CHANNELS)
    graph = Network(
        lambda self, x: F.causal_conv1d(x, taps, self.conv, **options),
        conv=F.conv_state(3, CHANNELS, 4, FLOAT32),
    )
    with pytest.raises(ValueError, match=message):
        graph.trace(x=(shape, FLOAT32))


def test_a_chunk_longer_than_the_state_s_is_refused() -> None:
    graph = Filter(taps=3, chunk=4).graph()
    message = r"causal_conv1d\(\): x has 5 rows, the state's window stages 4"
    with pytest.raises(ValueError, match=message):
        graph.trace(x=((5, CHANNELS), FLOAT32))


def test_a_state_of_other_taps_or_dtype_is_refused() -> None:
    taps = random(4, CHANNELS)
    graph = Network(
        lambda self, x: F.causal_conv1d(x, taps, self.conv), conv=F.conv_state(3, 6, 4, FLOAT32)
    )
    message = (
        r"CausalConv1d.state is \(2, 6\); x is \(1, 6\) and taps \(4, 6\), so it must be \(3, 6\)"
    )
    with pytest.raises(ValueError, match=message):
        graph.trace(x=((1, 6), FLOAT32))
    graph.conv = F.conv_state(4, 6, 4, BFLOAT16)
    with pytest.raises(
        TypeError, match=r"CausalConv1d.state is bfloat16, the other operands are fl"
    ):
        graph.trace(x=((1, 6), FLOAT32))
