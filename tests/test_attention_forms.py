"""Attention with masks, caps, windows, slopes and sinks, against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from networks import Exported, Network, random

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

FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bool mask": ({"attn_mask": MASK}, {"seen": MASK}),
    "additive mask": ({"attn_mask": BIAS}, {"seen": np.ones((T, S), bool), "bias": BIAS}),
    "softcap": ({"softcap": 1.5}, {"seen": np.ones((T, S), bool), "cap": 1.5}),
    "window": ({"window": 2, "position": 2, "is_causal": True}, {"seen": CAUSAL & (PLACES > -2)}),
    "alibi": (
        {"alibi": SLOPES, "position": 2, "is_causal": True},
        {"seen": CAUSAL, "bias": SLOPES[:, None, None] * PLACES},
    ),
    "sinks": ({"sinks": SLOPES}, {"seen": np.ones((T, S), bool), "sinks": SLOPES}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_torch_s_on_every_runtime(form: str) -> None:
    options, wanted = FORMS[form]
    q, k, v = operands()
    graph = Network(
        lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    )
    expected = by_torch(q, k, v, **wanted)
    trace = graph.trace(**{n: (x.shape, FLOAT32) for n, x in zip("qkv", (q, k, v), strict=True)})
    runs = graph.reference(q, k, v), graph(q, k, v), Exported(trace)(q=q, k=k, v=v)["output"]
    for result in runs:
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


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
