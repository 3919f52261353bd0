"""Granite: Llama with multipliers on the embedding, the residuals, attention and the logits.

The multipliers are those of Yang et al., arXiv 2203.03466 (maximal update parametrisation).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from onnx_iron.graph import Handle
from onnx_iron.models.blocks import Attention, Call, GatedMLP, RMSNorm
from onnx_iron.models.decoder import Decoder, Shape, head, read_decoder
from onnx_iron.models.families.llama import LlamaConfig, LlamaLayer
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights


@dataclass(frozen=True, kw_only=True)
class GraniteConfig(LlamaConfig):
    """Llama's sizes, and the multipliers."""

    attention_multiplier: float
    embedding_multiplier: float
    logits_scaling: float
    residual_multiplier: float


class GraniteLayer(LlamaLayer):
    """Llama's layer with scaled residuals."""

    def __init__(
        self, weights: Weights, config: GraniteConfig, attention: Attention, mlp: GatedMLP
    ) -> None:
        super().__init__(weights, config, attention, mlp)
        self._scale = config.residual_multiplier

    def __call__(self, h: Handle, call: Call) -> Handle:
        h = h + self.self_attn(self.input_layernorm(h), call) * self._scale
        result: Handle = h + self.mlp(self.post_attention_layernorm(h)) * self._scale
        return result


class Granite(Decoder):
    """A decoder with a scaled embedding and scaled logits."""

    def __init__(self, config: GraniteConfig, weights: Weights, shape: Shape) -> None:
        body = weights.at("model")
        embedding = body("embed_tokens.weight", config.vocab_size, config.hidden_size)
        heads = dataclasses.replace(config.heads, scale=config.attention_multiplier)
        layers = []
        for i in range(config.num_layers):
            own = body.at(f"layers.{i}")
            attention = Attention.of(
                own.at("self_attn"),
                heads,
                shape.cache,
                bias=config.attention_bias,
                out_bias=config.attention_bias,
            )
            mlp = GatedMLP.of(
                own.at("mlp"), config.hidden_size, config.intermediate_size, bias=config.mlp_bias
            )
            layers.append(GraniteLayer(own, config, attention, mlp))
        super().__init__(
            embedding,
            layers,
            RMSNorm(body.at("norm"), config.hidden_size, config.rms_norm_eps),
            head(weights, embedding, config),
            {"default": config.rope},
            shape,
        )
        self._embedding_multiplier = config.embedding_multiplier
        self._logits_scaling = config.logits_scaling

    def embedded(self, input_ids: Handle) -> Handle:
        scaled: Handle = super().embedded(input_ids) * self._embedding_multiplier
        return scaled

    def logits(self, h: Handle) -> Handle:
        scaled: Handle = super().logits(h) / self._logits_scaling
        return scaled


def read(fields: Fields) -> GraniteConfig:
    fields.neutral(hidden_act="silu")
    return GraniteConfig(
        **vars(read_decoder(fields)),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        attention_multiplier=fields.positive("attention_multiplier", 1.0),
        embedding_multiplier=fields.positive("embedding_multiplier", 1.0),
        logits_scaling=fields.positive("logits_scaling", 1.0),
        residual_multiplier=fields.positive("residual_multiplier", 1.0),
    )


FAMILY = Family("granite", ("GraniteForCausalLM",), read, Granite)
