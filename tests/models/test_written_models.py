"""Models written as in torch from transformers' modules, and held to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import transformers
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from onnx_iron import Graph, Session, Weight, export, state
from onnx_iron import functional as F

VOCABULARY, CONTEXT, CHUNK, PROMPT, ROWS = 97, 32, 8, 21, 27
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
# Float32 sums in another order than torch's, through two layers; rows are near 3.
CLOSE = {"rtol": 0, "atol": 2e-4}


def lively(model: Any) -> Any:
    """A module of random weights of which every part counts."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        mean, spread = (0.5, 0.3) if parameter.ndim == 1 else (0.0, parameter.shape[-1] ** -0.5)
        torch.nn.init.normal_(parameter, mean, spread)
    return model.eval()


def linear(x: Any, module: Any) -> Any:
    return F.linear(x, module.weight, module.bias)


def layer_norm(x: Any, module: Any) -> Any:
    return F.layer_norm(x, module.weight.shape, module.weight, module.bias, module.eps)


class Text(Graph):
    """What decoders of text share: ids to rows, some of which count, at positions of a cache."""

    bounds: ClassVar = {"ids": "rows"}

    def __init__(self, model: Any, kv_heads: int, head_dim: int) -> None:
        self._model, self._config = model, model.config
        self._head_dim = head_dim
        self.angles = Weight.of(
            F.rope_angles(CONTEXT, head_dim, scaling=model.config.rope_parameters)
        )
        cache = CONTEXT, kv_heads, head_dim
        self.keys = [state(cache, np.float32) for _ in model.layers]
        self.values = [state(cache, np.float32) for _ in model.layers]

    def attention(self, x: Any, i: int, module: Any, position: Any, rows: Any, **norms: Any) -> Any:
        """Layer ``i``'s, its keys and values written at ``position``."""
        n, dim = x.shape[0], self._head_dim
        q, k, v = (
            linear(x, p).reshape(n, -1, dim) for p in (module.q_proj, module.k_proj, module.v_proj)
        )
        q, k = (norms[name](x) if name in norms else x for name, x in (("q", q), ("k", k)))
        angles = self.angles[position : position + rows]
        self.keys[i][position : position + rows] = F.rope(k, angles)
        self.values[i][position : position + rows] = v
        return F.scaled_dot_product_attention(
            F.rope(q, angles),
            self.keys[i],
            self.values[i],
            position=position,
            is_causal=True,
            enable_gqa=True,
        ).flatten(1)

    def norm(self, x: Any, module: Any, offset: float = 0.0) -> Any:
        eps = module.eps if hasattr(module, "eps") else module.variance_epsilon
        return F.rms_norm(x, module.weight.shape, module.weight + offset, eps)


class Qwen3(Text):
    """Queries and keys are normed head by head."""

    def body(self, ids: Any, *, position: Any, rows: Any) -> Any:
        h = F.embedding(ids, self._model.embed_tokens.weight)
        for i, layer in enumerate(self._model.layers):
            x, a = self.norm(h, layer.input_layernorm), layer.self_attn
            norms = {"q": lambda x, a=a: self.norm(x, a.q_norm)}
            norms["k"] = lambda x, a=a: self.norm(x, a.k_norm)
            h = h + linear(self.attention(x, i, a, position, rows, **norms), a.o_proj)
            x, m = self.norm(h, layer.post_attention_layernorm), layer.mlp
            h = h + linear(F.swiglu(linear(x, m.gate_proj), linear(x, m.up_proj)), m.down_proj)
        return self.norm(h, self._model.norm)


class Lfm2(Text):
    """Short convolutions whose rows are carried, and attention in one layer."""

    def __init__(self, model: Any, *sizes: int) -> None:
        super().__init__(model, *sizes)
        width, taps = model.config.hidden_size, model.config.conv_L_cache
        self.convs = [F.conv_state(taps, width, CHUNK, np.float32) for _ in model.layers]

    def body(self, ids: Any, *, position: Any, rows: Any) -> Any:
        h = F.embedding(ids, self._model.embed_tokens.weight)
        for i, layer in enumerate(self._model.layers):
            x = self.norm(h, layer.operator_norm)
            if layer.is_attention_layer:
                a = layer.self_attn
                norms = {"q": lambda x, a=a: self.norm(x, a.q_layernorm)}
                norms["k"] = lambda x, a=a: self.norm(x, a.k_layernorm)
                y = linear(self.attention(x, i, a, position, rows, **norms), a.out_proj)
            else:
                c = layer.conv
                b, gate, x = F.chunk(linear(x, c.in_proj), 3, dim=-1)
                y = F.causal_conv1d(b * x, c.conv.weight[:, 0].T, self.convs[i])
                y = linear(gate * y, c.out_proj)
            h = h + y
            x, m = self.norm(h, layer.ffn_norm), layer.feed_forward
            h = h + linear(F.silu(linear(x, m.w1)) * linear(x, m.w3), m.w2)
        return self.norm(h, self._model.embedding_norm)


class Gemma(Text):
    """Norms with one added to their weights, a scaled embedding, gelu."""

    def body(self, ids: Any, *, position: Any, rows: Any) -> Any:
        h = F.embedding(ids, self._model.embed_tokens.weight) * self._config.hidden_size**0.5
        for i, layer in enumerate(self._model.layers):
            x, a = self.norm(h, layer.input_layernorm, 1.0), layer.self_attn
            h = h + linear(self.attention(x, i, a, position, rows), a.o_proj)
            x, m = self.norm(h, layer.post_attention_layernorm, 1.0), layer.mlp
            y = F.gelu(linear(x, m.gate_proj), "tanh") * linear(x, m.up_proj)
            h = h + linear(y, m.down_proj)
        return self.norm(h, self._model.norm, 1.0)


class Mamba(Graph):
    """Selective scans; nothing depends on positions."""

    bounds: ClassVar = {"ids": "rows"}

    def __init__(self, model: Any) -> None:
        self._model, c = model, model.config
        inner, states = c.intermediate_size, c.state_size
        self.convs = [F.conv_state(c.conv_kernel, inner, CHUNK, np.float32) for _ in model.layers]
        self.scans = [state((inner, states), np.float32) for _ in model.layers]
        self.decays = [-torch.exp(layer.mixer.A_log.detach()) for layer in model.layers]

    def body(self, ids: Any, *, rows: Any) -> Any:
        model, c = self._model, self._model.config
        h = F.embedding(ids, model.embeddings.weight)
        for i, layer in enumerate(model.layers):
            m, norm = layer.mixer, layer.norm
            x = F.rms_norm(h, norm.weight.shape, norm.weight, norm.variance_epsilon)
            x, z = F.chunk(linear(x, m.in_proj), 2, dim=-1)
            taps, bias = m.conv1d.weight[:, 0].T, m.conv1d.bias
            x = F.causal_conv1d(x, taps, self.convs[i], bias=bias, activation="silu")
            parts = [c.time_step_rank, c.state_size, c.state_size]
            dt, b, c_ = F.split(linear(x, m.x_proj), parts, dim=-1)
            y = F.selective_scan(
                x,
                F.linear(dt, m.dt_proj.weight),
                self.decays[i],
                b,
                c_,
                self.scans[i],
                D=m.D,
                z=z,
                dt_bias=m.dt_proj.bias,
                dt_softplus=True,
            )
            h = h + linear(y, m.out_proj)
        norm = model.norm_f
        return F.rms_norm(h, norm.weight.shape, norm.weight, norm.variance_epsilon)


def qwen3() -> tuple[Graph, Any]:
    config = transformers.Qwen3Config(**SIZES, head_dim=16)
    model = lively(transformers.Qwen3Model(config))
    return Qwen3(model, 2, 16), model


def lfm2() -> tuple[Graph, Any]:
    layers = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
    config = transformers.Lfm2Config(**{**SIZES, **layers}, block_multiple_of=16)
    model = lively(transformers.Lfm2Model(config))
    return Lfm2(model, 2, 8), model


def gemma() -> tuple[Graph, Any]:
    config = transformers.GemmaConfig(**SIZES, head_dim=16, hidden_act="gelu_pytorch_tanh")
    model = lively(transformers.GemmaModel(config))
    return Gemma(model, 2, 16), model


def mamba() -> tuple[Graph, Any]:
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
    model = lively(transformers.MambaModel(transformers.MambaConfig(**sizes, state_size=5)))
    return Mamba(model), model


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("made", [qwen3, lfm2, gemma, mamba])
def test_a_decoder_gives_the_rows_of_transformers(
    made: Callable[[], tuple[Graph, Any]], provider: str, tmp_path: Path
) -> None:
    graph, model = made()
    ids = np.random.default_rng(0).integers(0, VOCABULARY, ROWS).astype(np.int32)
    with torch.no_grad():
        wanted = model(torch.from_numpy(ids)[None].long()).last_hidden_state[0].numpy()
    lengths = (("prefill", CHUNK), ("decode", 1))
    export({name: graph.trace(ids=((n,), np.int32)) for name, n in lengths}, tmp_path)
    session = Session(tmp_path, provider=provider)
    rows = [session.prefill(ids=ids[:PROMPT])["output"]]
    rows += [session.decode(ids=ids[t : t + 1])["output"] for t in range(PROMPT, ROWS)]
    np.testing.assert_allclose(np.concatenate(rows), wanted, **CLOSE)


class WhisperOfSound(Graph):
    """Two convolutions along time, and layers that see all of it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def body(self, mel: Any) -> Any:
        model = self._model
        for conv in (model.conv1, model.conv2):
            mel = F.gelu(F.conv1d(mel, conv.weight, conv.bias, conv.stride[0], padding=1))
        h = mel.T + model.embed_positions.weight
        heads = model.config.encoder_attention_heads
        for layer in model.layers:
            x, a = layer_norm(h, layer.self_attn_layer_norm), layer.self_attn
            q, k, v = (
                linear(x, p).reshape(x.shape[0], heads, -1) for p in (a.q_proj, a.k_proj, a.v_proj)
            )
            h = h + linear(F.scaled_dot_product_attention(q, k, v).flatten(1), a.out_proj)
            x = layer_norm(h, layer.final_layer_norm)
            h = h + linear(F.gelu(linear(x, layer.fc1)), layer.fc2)
        return layer_norm(h, model.layer_norm)


class PaddedBert(Graph):
    """A text of ``valid`` tokens, and padding that nothing sees."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def body(self, ids: Any, *, valid: Any) -> Any:
        model, n = self._model, ids.shape[0]
        e, heads = model.embeddings, model.config.num_attention_heads
        words = F.embedding(ids, e.word_embeddings.weight)
        places = e.position_embeddings.weight[:n] + e.token_type_embeddings.weight[0]
        h = layer_norm(words + places, e.LayerNorm)
        for layer in model.encoder.layer:
            a, out = layer.attention.self, layer.attention.output
            q, k, v = (linear(h, p).reshape(n, heads, -1) for p in (a.query, a.key, a.value))
            y = F.scaled_dot_product_attention(q, k[:valid], v[:valid]).flatten(1)
            h = layer_norm(linear(y, out.dense) + h, out.LayerNorm)
            y = linear(F.gelu(linear(h, layer.intermediate.dense)), layer.output.dense)
            h = layer_norm(y + h, layer.output.LayerNorm)
        return h


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_whisper_s_encoder_gives_the_rows_of_transformers(provider: str, tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        d_model=48,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=96,
        num_mel_bins=8,
        max_source_positions=20,
        attn_implementation="eager",
    )
    model = lively(WhisperEncoder(config))
    mel = np.random.default_rng(0).standard_normal((8, 40), np.float32)
    with torch.no_grad():
        wanted = model(torch.from_numpy(mel)[None]).last_hidden_state[0].numpy()
    export(WhisperOfSound(model).trace(mel=(mel.shape, np.float32)), tmp_path / "m.onnx")
    session = Session(tmp_path / "m.onnx", provider=provider)
    np.testing.assert_allclose(session.run({"mel": mel})["output"], wanted, **CLOSE)


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("valid", [1, 13, 20])
def test_padding_changes_nothing_in_bert_s_rows(valid: int, provider: str, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    model = lively(transformers.BertModel(config, add_pooling_layer=False))
    ids = np.random.default_rng(0).integers(0, VOCABULARY, 20).astype(np.int32)
    mask = torch.zeros(1, 20)
    mask[:, :valid] = 1
    with torch.no_grad():
        given = torch.from_numpy(ids)[None].long()
        wanted = model(given, attention_mask=mask).last_hidden_state[0, :valid].numpy()
    export(PaddedBert(model).trace(ids=(ids.shape, np.int32)), tmp_path / "m.onnx")
    session = Session(tmp_path / "m.onnx", provider=provider)
    rows = session.run({"ids": ids, "valid": valid})["output"]
    np.testing.assert_allclose(rows[:valid], wanted, **CLOSE)


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_a_strided_convolution_is_torch_s(provider: str, tmp_path: Path) -> None:
    conv = lively(torch.nn.Conv1d(8, 12, 3, stride=2, padding=1))

    class Conv(Graph):
        def __init__(self) -> None:
            self._conv = conv

        def body(self, x: Any) -> Any:
            return F.conv1d(x, conv.weight, conv.bias, stride=2, padding=1)

    x = np.random.default_rng(0).standard_normal((8, 40), np.float32)
    with torch.no_grad():
        wanted = conv(torch.from_numpy(x)[None])[0].numpy()
    export(Conv().trace(x=(x.shape, np.float32)), tmp_path / "m.onnx")
    session = Session(tmp_path / "m.onnx", provider=provider)
    np.testing.assert_allclose(session.run({"x": x})["output"], wanted, rtol=1e-5, atol=1e-5)
