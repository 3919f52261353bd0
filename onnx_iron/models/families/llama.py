"""Llama: Touvron et al., arXiv 2302.13971, with grouped queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_iron.graph import Handle
from onnx_iron.models.blocks import Attention, Call, GatedMLP, RMSNorm
from onnx_iron.models.decoder import Decoder, DecoderConfig, Layer, Shape, head, read_decoder
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderConfig):
    """A decoder whose projections may have biases."""

    attention_bias: bool = False
    mlp_bias: bool = False


class LlamaLayer:
    """Attention, then a gated product, each after a norm and added to the rows."""

    def __init__(
        self, weights: Weights, config: DecoderConfig, attention: Attention, mlp: GatedMLP
    ) -> None:
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(weights.at("input_layernorm"), width, eps)
        self.self_attn = attention
        self.post_attention_layernorm = RMSNorm(weights.at("post_attention_layernorm"), width, eps)
        self.mlp = mlp

    def __call__(self, h: Handle, call: Call) -> Handle:
        h = h + self.self_attn(self.input_layernorm(h), call)
        result: Handle = h + self.mlp(self.post_attention_layernorm(h))
        return result


def decoder(
    config: DecoderConfig,
    weights: Weights,
    shape: Shape,
    layers: Sequence[Layer],
    kind: type[Decoder] = Decoder,
) -> Decoder:
    """Layers under the names that most checkpoints have for what is around them."""
    body = weights.at("model")
    embedding = body("embed_tokens.weight", config.vocab_size, config.hidden_size)
    return kind(
        embedding,
        layers,
        RMSNorm(body.at("norm"), config.hidden_size, config.rms_norm_eps),
        head(weights, embedding, config),
        {"default": config.rope},
        shape,
    )


def build(config: LlamaConfig, weights: Weights, shape: Shape) -> Decoder:
    layers = []
    for i in range(config.num_layers):
        own = weights.at(f"model.layers.{i}")
        attention = Attention.of(
            own.at("self_attn"),
            config.heads,
            shape.cache,
            bias=config.attention_bias,
            out_bias=config.attention_bias,
        )
        mlp = GatedMLP.of(
            own.at("mlp"), config.hidden_size, config.intermediate_size, bias=config.mlp_bias
        )
        layers.append(LlamaLayer(own, config, attention, mlp))
    return decoder(config, weights, shape, layers)


def read(fields: Fields) -> LlamaConfig:
    fields.neutral(hidden_act="silu")
    return LlamaConfig(
        **vars(read_decoder(fields)),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )


FAMILY = Family("llama", ("LlamaForCausalLM",), read, build)
