"""Gemma 2: Gemma Team, arXiv 2408.00118. Norms around each part, capped scores, windows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from onnx_iron import functional as F
from onnx_iron.graph import Handle
from onnx_iron.models.blocks import Attention, Call, GatedMLP, RMSNorm
from onnx_iron.models.decoder import Decoder, DecoderConfig, Shape, head, read_decoder
from onnx_iron.models.families.mistral import windowed
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.rope import Rope
from onnx_iron.models.weights import Weights

_SLIDING, _FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(DecoderConfig):
    """A decoder's sizes.

    Attributes:
        layer_types: "sliding_attention" or "full_attention" for each layer.
        window: how many entries a row of the former sees.
        scale: what products of queries and keys are multiplied by.
        attention_cap: s of ``s tanh(score / s)``; None for none.
        logits_cap: the same of the logits.
        norm_offset: what is added to a norm's weight: 1 as the checkpoints keep it.
        sliding_rope: the rotary embedding of the former layers, where it is another.
        head_norms: each head's queries and keys have norms.
    """

    layer_types: tuple[str, ...]
    window: int
    scale: float
    attention_cap: float | None
    logits_cap: float | None
    norm_offset: float = 1.0
    sliding_rope: Rope | None = None
    head_norms: bool = False


class GemmaLayer:
    """Attention, then a gated product, with a norm before and after each."""

    def __init__(self, weights: Weights, config: GemmaConfig, kind: str, shape: Shape) -> None:
        width = config.hidden_size
        norm = partial(_norm, config)
        self.input_layernorm = norm(weights.at("input_layernorm"), width)
        self.post_attention_layernorm = norm(weights.at("post_attention_layernorm"), width)
        self.pre_feedforward_layernorm = norm(weights.at("pre_feedforward_layernorm"), width)
        self.post_feedforward_layernorm = norm(weights.at("post_feedforward_layernorm"), width)
        own = weights.at("self_attn")
        norms = None
        if config.head_norms:
            q, k = (norm(own.at(name), config.head_dim) for name in ("q_norm", "k_norm"))
            norms = q, k
        heads = dataclasses.replace(
            config.heads,
            scale=config.scale,
            softcap=config.attention_cap,
            window=windowed(config.window, shape.context) if kind == _SLIDING else None,
            rope=kind,
        )
        self.self_attn = Attention.of(own, heads, shape.cache, norms=norms)
        activation = partial(F.gelu, approximate="tanh")
        self.mlp = GatedMLP.of(
            weights.at("mlp"), width, config.intermediate_size, activation=activation
        )

    def __call__(self, h: Handle, call: Call) -> Handle:
        seen = self.self_attn(self.input_layernorm(h), call)
        h = h + self.post_attention_layernorm(seen)
        product = self.mlp(self.pre_feedforward_layernorm(h))
        result: Handle = h + self.post_feedforward_layernorm(product)
        return result


class Gemma(Decoder):
    """A decoder with a scaled embedding and capped logits."""

    def __init__(self, config: GemmaConfig, weights: Weights, shape: Shape) -> None:
        body = weights.at("model")
        embedding = body("embed_tokens.weight", config.vocab_size, config.hidden_size)
        layers = [
            GemmaLayer(body.at(f"layers.{i}"), config, kind, shape)
            for i, kind in enumerate(config.layer_types)
        ]
        ropes = {_FULL: config.rope, _SLIDING: config.sliding_rope or config.rope}
        super().__init__(
            embedding,
            layers,
            _norm(config, body.at("norm"), config.hidden_size),
            head(weights, embedding, config),
            {kind: ropes[kind] for kind in sorted(set(config.layer_types))},
            shape,
        )
        self._scale = config.hidden_size**0.5
        self._cap = config.logits_cap

    def embedded(self, input_ids: Handle) -> Handle:
        scaled: Handle = super().embedded(input_ids) * self._scale
        return scaled

    def logits(self, h: Handle) -> Handle:
        logits = super().logits(h)
        return logits if self._cap is None else F.softcap(logits, self._cap)


def _norm(config: GemmaConfig, weights: Weights, width: int) -> RMSNorm:
    return RMSNorm(weights, width, config.rms_norm_eps, offset=config.norm_offset)


def read(fields: Fields) -> GemmaConfig:
    sizes = read_decoder(fields, tied=True)
    layers = sizes.num_layers
    neutral(fields)
    default = [_FULL if i % 2 else _SLIDING for i in range(layers)]
    return GemmaConfig(
        **vars(sizes),
        layer_types=fields.words("layer_types", (_SLIDING, _FULL), layers) or tuple(default),
        **attention(fields),
    )


def neutral(fields: Fields) -> None:
    """Refuse what the graph has not."""
    activations = ("gelu_pytorch_tanh",)
    fields.choice("hidden_activation", activations, activations[0])
    fields.neutral(
        hidden_act=("gelu_pytorch_tanh", "gelu"),  # without effect beside hidden_activation
        attention_bias=False,
        use_bidirectional_attention=False,
    )


def attention(fields: Fields) -> dict[str, Any]:
    """What the attention of both generations has, as a configuration's arguments."""
    caps = {
        name: fields.positive(entry) if fields.has(entry) else None
        for name, entry in (
            ("attention_cap", "attn_logit_softcapping"),
            ("logits_cap", "final_logit_softcapping"),
        )
    }
    fields.idle("cache_implementation")
    return {
        "window": fields.size("sliding_window", 4096),
        "scale": fields.positive("query_pre_attn_scalar", 256.0) ** -0.5,
        **caps,
    }


FAMILY = Family("gemma2", ("Gemma2ForCausalLM",), read, Gemma)
