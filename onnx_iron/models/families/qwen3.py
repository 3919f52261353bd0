"""Qwen3: Yang et al., arXiv 2505.09388. Llama with norms of each head's queries and keys."""

from __future__ import annotations

from onnx_iron.models.blocks import Attention, GatedMLP, RMSNorm
from onnx_iron.models.decoder import Decoder, Shape, read_decoder
from onnx_iron.models.families.llama import LlamaConfig, LlamaLayer, decoder
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights


def build(config: LlamaConfig, weights: Weights, shape: Shape) -> Decoder:
    layers = []
    for i in range(config.num_layers):
        own = weights.at(f"model.layers.{i}")
        norms = (
            RMSNorm(own.at("self_attn.q_norm"), config.head_dim, config.rms_norm_eps),
            RMSNorm(own.at("self_attn.k_norm"), config.head_dim, config.rms_norm_eps),
        )
        attention = Attention.of(
            own.at("self_attn"),
            config.heads,
            shape.cache,
            bias=config.attention_bias,
            out_bias=config.attention_bias,
            norms=norms,
        )
        mlp = GatedMLP.of(own.at("mlp"), config.hidden_size, config.intermediate_size)
        layers.append(LlamaLayer(own, config, attention, mlp))
    return decoder(config, weights, shape, layers)


def read(fields: Fields) -> LlamaConfig:
    fields.neutral(hidden_act="silu", use_sliding_window=False)
    fields.idle("sliding_window", "max_window_layers")  # without effect where windows are off
    config = LlamaConfig(
        **vars(read_decoder(fields)), attention_bias=fields.flag("attention_bias", False)
    )
    fields.words("layer_types", ("full_attention",), config.num_layers)
    return config


FAMILY = Family("qwen3", ("Qwen3ForCausalLM",), read, build)
