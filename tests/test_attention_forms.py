"""Attention with masks, caps, windows, slopes and sinks, against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from networks import Exported, Network, random, recorded

from onnx_iron import functional as F
from onnx_iron import state
from onnx_iron.dtypes import FLOAT32, Array

T, S, H, G, D = 3, 7, 4, 2, 8


def operands(rows: int = T, entries: int = S) -> tuple[Array, Array, Array]:
    return random(rows, H, D), random(entries, G, D, seed=1), random(entries, G, D, seed=2)


def by_torch(
    query: Array,
    key: Array,
    value: Array,
    seen: Array,
    *,
    bias: Any = 0.0,
    cap: float | None = None,
    sinks: Array | None = None,
) -> Array:
    """Attention in float64, written out as transformers' eager ones do."""
    q = torch.from_numpy(query).double().transpose(0, 1)
    k, v = (torch.from_numpy(x).double().transpose(0, 1) for x in (key, value))
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    scores = q @ k.transpose(1, 2) * D**-0.5
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    scores = (scores + torch.as_tensor(bias)).masked_fill(~torch.from_numpy(seen), -torch.inf)
    if sinks is not None:
        column = torch.from_numpy(sinks).double()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], -1)
    weights = torch.nan_to_num(scores.softmax(-1))[..., : k.shape[1]]
    return np.asarray((weights @ v).transpose(0, 1).numpy())


PLACES = np.arange(S)[None] - (np.arange(T)[:, None] + 2)  # where position is 2
CAUSAL = PLACES <= 0
SLOPES = np.array([0.5, 0.25, 0.125, 1.0], np.float32)
BIAS = random(H, T, S, seed=5)
MASK = np.array([[1, 0, 1, 1, 0, 0, 1], [0] * 7, [1] * 7], bool)

ALL = np.ones((T, S), bool)
HIDING = np.where(MASK, BIAS[0], -np.inf).astype(np.float32)

FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bool mask": ({"attn_mask": MASK}, {"seen": MASK}),
    "bool mask of heads": ({"attn_mask": BIAS > 0}, {"seen": BIAS > 0}),
    "bool mask of entries": ({"attn_mask": MASK[:1]}, {"seen": MASK[:1] & ALL}),
    "bool mask of rows": ({"attn_mask": MASK[:, 1:2]}, {"seen": MASK[:, 1:2] & ALL}),
    "additive mask": ({"attn_mask": BIAS}, {"seen": ALL, "bias": BIAS}),
    "additive mask of rows": (
        {"attn_mask": BIAS[:1, :, :1]},
        {"seen": ALL, "bias": BIAS[:1, :, :1]},
    ),
    "additive mask of minus infinity": ({"attn_mask": HIDING}, {"seen": MASK, "bias": BIAS[0]}),
    "softcap": ({"softcap": 1.5}, {"seen": ALL, "cap": 1.5}),
    "window": ({"window": 2, "position": 2, "is_causal": True}, {"seen": CAUSAL & (PLACES > -2)}),
    "alibi": (
        {"alibi": SLOPES, "position": 2, "is_causal": True},
        {"seen": CAUSAL, "bias": SLOPES[:, None, None] * PLACES},
    ),
    "sinks": ({"sinks": SLOPES}, {"seen": ALL, "sinks": SLOPES}),
    "all": (
        {
            "attn_mask": BIAS,
            "softcap": 2.0,
            "window": 4,
            "alibi": SLOPES,
            "sinks": -SLOPES,
            "position": 2,
            "is_causal": True,
        },
        {
            "seen": CAUSAL & (PLACES > -4),
            "bias": SLOPES[:, None, None] * PLACES + BIAS,
            "cap": 2.0,
            "sinks": -SLOPES,
        },
    ),
}


def attention(**options: Any) -> Network:
    return Network(
        lambda self, q, k, v: F.scaled_dot_product_attention(
            q, k, v, enable_gqa=True, layout="rows_first", **options
        )
    )


def runs(graph: Network, *given: Array) -> list[Array]:
    """What numpy, our kernel, and the function body on stock onnxruntime make of them."""
    names = dict(zip("qkv", given, strict=True))
    trace = graph.trace(**{n: (x.shape, FLOAT32) for n, x in names.items()})
    assert recorded(trace) == ["Attention"]
    return [graph.reference(*given), graph(*given), Exported(trace)(**names)["output"]]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_step_and_torch_s_on_every_runtime(form: str) -> None:
    options, wanted = FORMS[form]
    q, k, v = operands()
    expected = by_torch(q, k, v, **wanted)
    for result in runs(attention(**options), q, k, v):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_its_sequences_one_by_one_bit_for_bit(form: str) -> None:
    options, _ = FORMS[form]
    sequences = [[x * (1 + b) for x in operands()] for b in range(3)]
    batch = [np.stack(x) for x in zip(*sequences, strict=True)]
    together = runs(attention(**options), *batch)
    for b, sequence in enumerate(sequences):
        alone = runs(attention(**options), *sequence)
        for way in (0, 1):
            np.testing.assert_array_equal(together[way][b], alone[way])
        np.testing.assert_allclose(together[2][b], alone[2], rtol=2e-5, atol=2e-6)


def test_each_sequence_of_a_batch_may_have_a_mask_of_its_own() -> None:
    q, k, v = (random(2, *x.shape, seed=i) for i, x in enumerate(operands()))
    masks = random(2, 1, T, S, seed=9) > 0
    together = runs(attention(attn_mask=masks), q, k, v)
    for b in range(2):
        expected = by_torch(q[b], k[b], v[b], masks[b])
        for result in together:
            np.testing.assert_allclose(result[b], expected, rtol=2e-5, atol=2e-6)


def test_torch_s_order_of_axes_with_a_batch() -> None:
    q, k, v = (random(2, 4, n, D, seed=i) for i, n in enumerate((T, S, S)))
    graph = Network(
        lambda self, q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=True, layout="heads_first"
        )
    )
    wanted = TF.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), is_causal=True)
    for result in (graph.reference(q, k, v), graph(q, k, v)):
        np.testing.assert_allclose(result, wanted.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("rows", [1, 3, 30])
@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf])
def test_what_no_row_sees_may_hold_anything(rows: int, junk: float) -> None:
    q, k, v = operands(rows, 150)
    hidden = np.zeros(150, bool)
    hidden[[0, 7, 127, 128, 149]] = True
    wanted = by_torch(q, k, v, np.tile(~hidden, (rows, 1)))
    k[hidden], v[hidden] = junk, junk
    additive = np.where(hidden, -np.inf, 0).astype(np.float32)
    for mask in (~hidden[None], additive[None]):
        graph = attention(attn_mask=mask)
        for result in (graph.reference(q, k, v), graph(q, k, v)):
            np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6)


def test_a_row_sees_no_infinity_that_another_one_sees() -> None:
    q, k, v = operands(30, 40)
    v[20, 1, 3] = np.inf
    result = attention(is_causal=True)(q, k, v)
    expected = by_torch(q[:20], k[:20], v[:20], np.tri(20, dtype=bool))
    np.testing.assert_allclose(result[:20], expected, rtol=2e-5, atol=2e-6)
    assert np.isinf(result[20:, 2:, 3]).all()


def test_a_mask_s_bounds_must_be_those_of_what_it_is_for() -> None:
    def body(self: Any, q: Any, k: Any, mask: Any, *, n: Any, m: Any) -> Any:
        return F.scaled_dot_product_attention(q, k[:n], k[:n], attn_mask=mask[:, :m])

    graph = Network(body)
    given = {"q": ((T, H, D), FLOAT32), "k": ((S, H, D), FLOAT32), "mask": ((T, S), FLOAT32)}
    with pytest.raises(ValueError, match="attn_mask is bounded by m along axis 1, and not what"):
        graph.trace(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mask": np.ones((2, T, S), bool)}, r"mask is \(2, 3, 7\).* must be \(4, 3, 7\)"),
        ({"attn_mask": np.ones(S, bool)}, r"mask is \(7,\)"),
        ({"attn_mask": np.ones((1, H, T, S), np.float32)}, r"bias is \(1, 4, 3, 7\)"),
        ({"sinks": np.ones(2, np.float32)}, r"sinks is \(2,\).* \(4,\) fits"),
        ({"alibi": np.ones(2, np.float32), "is_causal": True}, r"alibi is \(2,\).* \(4,\) fits"),
        ({"softcap": 0.0}, "softcap is 0.0; it must be above 0 and finite"),
        ({"softcap": float("inf")}, "softcap is inf; it must be above 0 and finite"),
        ({"window": 0, "is_causal": True}, "window is 0; it must be 1 or more"),
        ({"window": 2}, "window and alibi count from a row's own entry"),
        ({"layout": "torch"}, "layout is 'torch'; expected 'rows_first' or 'heads_first'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_when_it_is_traced(
    options: dict[str, Any], message: str
) -> None:
    graph = Network(
        lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    )
    shapes = {n: (x.shape, FLOAT32) for n, x in zip("qkv", operands(), strict=True)}
    with pytest.raises(ValueError, match=message):
        graph.trace(**shapes)


def test_a_batch_that_differs_is_refused() -> None:
    shapes = {"q": ((2, T, H, D), FLOAT32), "k": ((3, S, H, D), FLOAT32)}
    graph = Network(lambda self, q, k: F.scaled_dot_product_attention(q, k, k))
    with pytest.raises(
        ValueError, match=r"key is \(3, 7, 4, 8\).* must be \(2, entries, kv_heads, 8"
    ):
        graph.trace(**shapes)


def test_a_mask_is_torch_s_own_functions_too() -> None:
    q, k, v = (x.transpose(1, 0, 2).copy() for x in operands())
    graph = Network(
        lambda self, q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=MASK, enable_gqa=True, layout="heads_first"
        )
    )
    tensors = [torch.from_numpy(x)[None] for x in (q, k, v)]
    mask = torch.from_numpy(MASK)
    wanted = TF.scaled_dot_product_attention(*tensors, attn_mask=mask, enable_gqa=True)[0]
    np.testing.assert_allclose(graph(q, k, v), wanted.numpy(), rtol=2e-5, atol=2e-6)


def test_a_shape_that_reads_both_ways_must_be_said() -> None:
    x = random(4, 4, 8)

    def body(self: Any, x: Any) -> Any:
        with pytest.raises(ValueError, match="rows can't be told from heads; pass layout"):
            F.scaled_dot_product_attention(x, x, x)
        rows = F.scaled_dot_product_attention(x, x, x, layout="rows_first")
        heads = F.scaled_dot_product_attention(x, x, x, layout="heads_first")
        return rows, heads

    rows, heads = Network(body).reference(x)
    t = torch.from_numpy(x)
    np.testing.assert_allclose(heads, TF.scaled_dot_product_attention(t, t, t), atol=1e-6)
    np.testing.assert_allclose(rows.transpose(1, 0, 2), TF.scaled_dot_product_attention(
        *[t.transpose(0, 1)] * 3
    ), atol=1e-6)  # fmt: skip


def test_a_ring_of_rows_sees_the_last_ones() -> None:
    size, rows = 4, 9
    x = random(rows, 1, D)

    def body(self: Any, x: Any, *, position: Any) -> Any:
        self.keys[position % size] = x[0]
        count = F.minimum(position + 1, size)
        return F.scaled_dot_product_attention(x, self.keys[:count], self.keys[:count])

    graph = Network(body, keys=state((size, 1, D), FLOAT32))
    for t in range(rows):
        last = torch.from_numpy(x[max(t - size + 1, 0) : t + 1]).transpose(0, 1)
        one = torch.from_numpy(x[t : t + 1]).transpose(0, 1)
        wanted = TF.scaled_dot_product_attention(one, last, last).transpose(0, 1)
        for result in (graph.reference(x[t : t + 1], position=t), graph(x[t : t + 1])):
            np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-5, atol=1e-6)
