"""causal_conv1d: any chunking of a sequence gives the same bits, those of a plain convolution."""

from __future__ import annotations

from dataclasses import dataclass
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

    taps: int
    chunk: int
    dtype: Any
    bias: bool
    activation: str | None
    two_states: bool
    calls: tuple[int | None, ...]  # the rows of a chunk, or None for a decode step


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    chunk = draw(st.integers(1, 6))
    calls = draw(st.lists(st.none() | st.integers(0, chunk), min_size=1, max_size=8))
    return Filter(
        draw(st.integers(1, 5)),
        chunk,
        draw(st.sampled_from(FLOATS)),
        draw(st.booleans()),
        draw(st.sampled_from([None, "silu"])),
        draw(st.booleans()),
        tuple(calls),
    )


def conv_state(case: Filter) -> F.ConvState:
    made = F.conv_state(case.taps, CHANNELS, case.chunk, case.dtype)
    if case.two_states:
        made.write = state((case.taps - 1, CHANNELS), case.dtype)
    return made


def network(case: Filter, *, decompose: bool = False) -> Graph:
    """A prompt chunk where x has several rows to bound, a decode step where it has one."""
    bias = random(CHANNELS, dtype=case.dtype, seed=2) if case.bias else None

    def filtered(self: Any, x: Handle) -> Handle:
        if decompose:
            result: Handle = CausalConv1d.decompose(x, self.taps, self.conv)
            return result
        return F.causal_conv1d(x, self.taps, self.conv, bias=bias, activation=case.activation)

    def body(self: Any, x: Handle, step: Handle, *, n: Value, is_step: Value) -> Any:
        del n, is_step
        return filtered(self, x), step + 0

    del body
    taps = random(case.taps, CHANNELS, dtype=case.dtype, seed=1)

    class Conv(Graph):
        def __init__(self) -> None:
            self.taps = taps
            self.conv = conv_state(case)

        def body(self, x: Handle, *, n: Value) -> Handle:
            return filtered(self, x[:n]) + 0

    class Step(Conv):
        def body(self, x: Handle) -> Handle:  # type: ignore[override]
            return filtered(self, x) + 0

    return Conv()
