"""Gemma 2 written as in torch: capped scores, sliding windows, rows bounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import Gemma2Config, Gemma2Model

from onnx_iron import Graph, Session, Weight, export, state
from onnx_iron import functional as F


class Gemma2(Graph):
    bounds: ClassVar = {"ids": "rows"}

    def __init__(self, model: Any, context: int) -> None:
        config = model.config
        self._model, self._config = model, config
        self.angles = Weight.of(
            F.rope_angles(context, config.head_dim, scaling=config.rope_parameters)
        )
        cache = context, config.num_key_value_heads, config.head_dim
        self.keys = [state(cache, np.float32) for _ in model.layers]
        self.values = [state(cache, np.float32) for _ in model.layers]

    def norm(self, x: Any, norm: Any) -> Any:
        return F.rms_norm(x, norm.weight.shape, norm.weight + 1, self._config.rms_norm_eps)

    def body(self, ids: Any, *, position: Any, rows: Any) -> Any:
        config, n = self._config, ids.shape[0]
        angles = self.angles[position : position + rows]
        h = F.embedding(ids, self._model.embed_tokens.weight) * config.hidden_size**0.5
        for i, layer in enumerate(self._model.layers):
            x, a = self.norm(h, layer.input_layernorm), layer.self_attn
            q, k, v = (
                F.linear(x, p.weight).reshape(n, -1, config.head_dim)
                for p in (a.q_proj, a.k_proj, a.v_proj)
            )
            self.keys[i][position : position + rows] = F.rope(k, angles)
            self.values[i][position : position + rows] = v
            y = F.scaled_dot_product_attention(
                F.rope(q, angles),
                self.keys[i],
                self.values[i],
                position=position,
                is_causal=True,
                enable_gqa=True,
                scale=config.query_pre_attn_scalar**-0.5,
                softcap=config.attn_logit_softcapping,
                window=config.sliding_window
                if config.layer_types[i] == "sliding_attention"
                else None,
            )
            y = F.linear(y.flatten(1), a.o_proj.weight)
            h = h + self.norm(y, layer.post_attention_layernorm)
            x, m = self.norm(h, layer.pre_feedforward_layernorm), layer.mlp
            y = F.gelu(F.linear(x, m.gate_proj.weight), "tanh") * F.linear(x, m.up_proj.weight)
            y = F.linear(y, m.down_proj.weight)
            h = h + self.norm(y, layer.post_feedforward_layernorm)
        return self.norm(h, self._model.norm)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=100,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=6,
        query_pre_attn_scalar=16,
        attn_implementation="eager",
        attn_logit_softcapping=5.0,
    )
    made = Gemma2Model(config).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, 0.0, parameter.shape[-1] ** -0.5)
    return made


IDS = np.random.default_rng(0).integers(0, 97, 27).astype(np.int32)


@pytest.fixture(scope="module")
def wanted(model: Any) -> Any:
    with torch.no_grad():
        return model(torch.from_numpy(IDS)[None].long()).last_hidden_state[0].numpy()


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_a_session_gives_transformers_hidden_states(
    model: Any, wanted: Any, provider: str, tmp_path: Path
) -> None:
    graph = Gemma2(model, 32)
    export(
        {name: graph.trace(ids=((n,), np.int32)) for name, n in (("prefill", 8), ("decode", 1))},
        tmp_path,
    )
    session = Session(tmp_path, provider=provider)
    rows = [session.prefill(ids=IDS[:21])["output"]]
    rows += [session.decode(ids=IDS[t : t + 1])["output"] for t in range(21, 27)]
    np.testing.assert_allclose(np.concatenate(rows), wanted, atol=2e-4)


def test_a_graph_is_called_as_it_is(model: Any, wanted: Any) -> None:
    graph = Gemma2(model, 32)
    rows = [graph(IDS[:8]), graph(ids=IDS[8:20])]
    rows += [graph(IDS[t : t + 1]) for t in range(20, 27)]
    np.testing.assert_allclose(np.concatenate(rows), wanted, atol=2e-4)
    graph.reset()
    np.testing.assert_array_equal(graph(IDS[:8]), rows[0])
