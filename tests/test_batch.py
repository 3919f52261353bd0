"""Batches: each function of B sequences gives the bits of B separate runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from networks import Network, random

from onnx_iron import functional as F
from onnx_iron.conformance.programs import same_bits
from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array
from onnx_iron.graph import Graph, state

SEQUENCES, ROWS, WIDTH, ENTRIES = 3, 5, 8, 9
TAPS, SPREAD = random(3, WIDTH, seed=7), random(6, WIDTH, seed=8)
BIAS = random(6, seed=9)
TABLE = random(WIDTH, 4, seed=10)
ANGLES = F.rope_angles(ENTRIES, WIDTH // 2)
# torch's conv1d has its channels first: here the rows are.
FILTERS = random(4, ROWS, 3, seed=11)
EACH = random(ROWS, 1, 3, seed=12)
STATES = np.abs(random(WIDTH, 4, seed=13))

Body = Callable[[Any, Any], Any]


def heads(x: Any) -> Any:
    return x.reshape(*x.shape[:-1], 2, WIDTH // 2)


def weight(x: Any, array: Array) -> Array:
    return array.astype(x.dtype)


# What computes each row from that row alone, or by a state, so that rows may be bounded.
BY_ROW: dict[str, Body] = {
    "abs": lambda g, x: F.abs(x),
    "amax": lambda g, x: F.amax(x, -1),
    "argmax": lambda g, x: F.argmax(x, -1),
    "cat": lambda g, x: F.cat([x, x * 2], -1),
    "causal_conv1d": lambda g, x: F.causal_conv1d(
        x, weight(x, TAPS), g.conv, bias=weight(x, TAPS[0]), activation="silu"
    ),
    "chunk": lambda g, x: F.chunk(x, 2, -1)[1].copy(),
    "clamp": lambda g, x: F.clamp(x, -0.5, 0.5),
    "cumsum": lambda g, x: F.cumsum(x, -1),
    "embedding": lambda g, x: F.embedding(F.argmax(x, -1), weight(x, TABLE)),
    "exp": lambda g, x: F.exp(x),
    "gelu": lambda g, x: F.gelu(x),
    "layer_norm": lambda g, x: F.layer_norm(x, WIDTH, weight(x, TAPS[0]), weight(x, TAPS[1])),
    "linear": lambda g, x: F.linear(x, weight(x, SPREAD), weight(x, BIAS)),
    "log": lambda g, x: F.log(x),
    "masked_fill": lambda g, x: F.masked_fill(x, x > 0, -1.0),
    "max": lambda g, x: F.max(x, -1).indices,
    "maximum": lambda g, x: F.maximum(x, weight(x, TAPS[0])),
    "mean": lambda g, x: F.mean(x, -1),
    "minimum": lambda g, x: F.minimum(x, 0.25),
    "neg": lambda g, x: F.neg(x),
    "one_hot": lambda g, x: F.one_hot(F.argmax(x, -1), WIDTH),
    "pad": lambda g, x: F.pad(x, (1, 2)),
    "pow": lambda g, x: F.pow(F.abs(x), 1.5),
    "relu": lambda g, x: F.relu(x),
    "rms_norm": lambda g, x: F.rms_norm(x, WIDTH, weight(x, TAPS[0])),
    "rope": lambda g, x: F.rope(heads(x), ANGLES[:ROWS]),
    "rsqrt": lambda g, x: F.rsqrt(F.abs(x)),
    "gated_delta_rule": lambda g, x: F.gated_delta_rule(
        heads(x), heads(x) * 0.5, heads(x), -abs(x[..., :2]), F.sigmoid(x[..., 2:4]), g.pairs
    ),
    "linear_attention": lambda g, x: F.linear_attention(
        heads(x), heads(x) * 0.5, heads(x), g.pairs
    ),
    "selective_scan": lambda g, x: F.selective_scan(
        x, x * 0.5, -STATES, x[..., :4], x[..., 4:], g.scanned, D=TAPS[0], dt_softplus=True
    ),
    "scaled_dot_product_attention": lambda g, x: F.scaled_dot_product_attention(
        heads(x), heads(x)[..., :1, :], heads(x)[..., 1:, :], is_causal=True, enable_gqa=True
    ),
    "sigmoid": lambda g, x: F.sigmoid(x),
    "silu": lambda g, x: F.silu(x),
    "softcap": lambda g, x: F.softcap(x, 2.0),
    "softmax": lambda g, x: F.softmax(x, -1),
    "softplus": lambda g, x: F.softplus(x),
    "split": lambda g, x: F.split(x, [3, 5], -1)[1].copy(),
    "sqrt": lambda g, x: F.sqrt(F.abs(x)),
    "squared_relu": lambda g, x: F.squared_relu(x),
    "stack": lambda g, x: F.stack([x, x * 2], -1),
    "sum": lambda g, x: F.sum(x, -1),
    "swiglu": lambda g, x: F.swiglu(x),
    "tanh": lambda g, x: F.tanh(x),
    "to": lambda g, x: F.to(x, "int32"),
    "topk": lambda g, x: F.topk(x, 3).values,
    "where": lambda g, x: F.where(x > 0, x, weight(x, TAPS[0])),
    # what handles can do
    "a product by @": lambda g, x: x @ weight(x, TABLE),
    "a product with a row": lambda g, x: x @ weight(x, TAPS[0]),
    "a product at the default precision": lambda g, x: F.linear(
        x, weight(x, SPREAD), precision=F.Precision.DEFAULT
    ),
    "a head turned in part": lambda g, x: F.rope(heads(x), ANGLES[:ROWS, :2], interleaved=True),
    "a part of each row": lambda g, x: x[..., 2:5] * x[..., :3],
    "another shape": lambda g, x: heads(x).transpose(-1, -2).flatten(-2),
    "arithmetic": lambda g, x: (x + weight(x, TAPS[0])) * x - 1 / (abs(x) + 1),
}
# What needs all rows of a sequence.
WHOLE: dict[str, Body] = {
    "conv1d": lambda g, x: F.conv1d(x, weight(x, FILTERS), stride=2, padding=1),
    "conv1d of each channel": lambda g, x: F.conv1d(
        x, weight(x, EACH), groups=ROWS, padding="same"
    ),
    "causal_conv1d of a whole sequence": lambda g, x: F.causal_conv1d(
        x, weight(x, TAPS), dilation=2
    ),
    "argmax over rows": lambda g, x: F.argmax(x, -2),
    "cat of rows": lambda g, x: F.cat([x, x * 2], -2),
    "cumsum over rows": lambda g, x: F.cumsum(x, -2),
    "scan": lambda g, x: F.scan(
        lambda h, row: (h * 0.5 + row, h + row),
        x[..., 0, :] * 0,
        x if x.ndim == 2 else x.transpose(0, 1),
    )[0],
    "one of the rows": lambda g, x: x[..., 2, :] + x[..., -1, :],
    "every other row": lambda g, x: x[..., ::2, :].copy(),
    "mean over rows": lambda g, x: F.mean(x, -2, keepdim=True),
    "pad of rows": lambda g, x: F.pad(x, (0, 0, 2, 1)),
    "softmax over rows": lambda g, x: F.softmax(x, -2),
    "split of rows": lambda g, x: F.split(x, 2, -2)[1].copy(),
    "stack before the rows": lambda g, x: F.stack([x, x * 2], -3),
    "sum over rows and columns": lambda g, x: F.sum(x, (-1, -2)),
    "topk over rows": lambda g, x: F.topk(x, 2, -2).indices,
    "turned": lambda g, x: x.transpose(-1, -2).copy(),
}
# What takes no tensor of a sequence.
OTHERS = {"ConvState", "Epilogue", "Precision", "conv_state", "rope_angles", "tensor"}
EVERY = BY_ROW | WHOLE


def network(body: Body, batch: int | None, dtype: Any, *, bounded: bool = False) -> Graph:
    """A graph of one sequence (rows, width), or of a batch of them."""

    def whole(self: Any, x: Any) -> Any:
        return body(self, x)

    def valid(self: Any, x: Any, *, n: Any) -> Any:
        return body(self, x[..., :n, :])

    sequences = () if batch is None else (batch,)
    return Network(
        valid if bounded else whole,
        conv=F.conv_state(3, WIDTH, ROWS, dtype, batch=batch),
        pairs=state((*sequences, 2, WIDTH // 2, WIDTH // 2), FLOAT32),
        scanned=state((*sequences, WIDTH, 4), FLOAT32),
    )


def assert_own_states(kept: Any, own: Any, number: int) -> None:
    """A sequence's states in a batch are those that it has by itself."""
    assert kept.keys() == own.keys()
    for name, array in own.items():
        if "." not in name:  # the scratch states of a convolution stage nothing here
            assert same_bits(kept[name][number], array), name


def runs(graph: Graph, calls: list[Array], way: str, **values: int) -> tuple[list[Array], Any]:
    """The results of calls one after another, and the states at the end."""
    results = [getattr(graph, way)(x, **values) for x in calls]
    states = graph.states() if way == "__call__" else graph.reference_states()
    return results, states


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_a_batch_has_the_bits_of_separate_runs(name: str, dtype: Any) -> None:
    calls = [random(SEQUENCES, ROWS, WIDTH, dtype=dtype, seed=seed) for seed in range(2)]
    for way in ("reference", "__call__"):
        together, kept = runs(network(EVERY[name], SEQUENCES, dtype), calls, way)
        for number in range(SEQUENCES):
            alone, own = runs(network(EVERY[name], None, dtype), [x[number] for x in calls], way)
            for one, other in zip(together, alone, strict=True):
                assert same_bits(one[number], other), way
            assert_own_states(kept, own, number)


@pytest.mark.parametrize("name", BY_ROW)
def test_rows_behind_the_bound_of_a_batch_reach_nothing(name: str) -> None:
    calls = [random(SEQUENCES, ROWS, WIDTH, seed=seed) for seed in range(2)]
    poisoned = [x.copy() for x in calls]
    for x in poisoned:
        x[:, 3:] = np.nan
    for way in ("reference", "__call__"):
        graph = network(BY_ROW[name], SEQUENCES, FLOAT32, bounded=True)
        together, kept = runs(graph, poisoned, way, n=3)
        for number in range(SEQUENCES):
            alone, own = runs(
                network(BY_ROW[name], None, FLOAT32, bounded=True),
                [x[number] for x in calls],
                way,
                n=3,
            )
            for one, other in zip(together, alone, strict=True):
                assert same_bits(one[number][:3], other[:3]), way
            assert_own_states(kept, own, number)


def test_every_function_is_held_to_it() -> None:
    assert set(F.__all__) <= EVERY.keys() | OTHERS
