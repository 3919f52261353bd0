"""Qwen2: Yang et al., arXiv 2407.10671. Llama with biases on queries, keys and values."""

from __future__ import annotations

from onnx_iron.models.blocks import Attention, GatedMLP
from onnx_iron.models.decoder import Decoder, DecoderConfig, Shape, read_decoder
from onnx_iron.models.families.llama import LlamaLayer, decoder
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights


def build(config: DecoderConfig, weights: Weights, shape: Shape) -> Decoder:
    layers = []
    for i in range(config.num_layers):
        own = weights.at(f"model.layers.{i}")
        attention = Attention.of(own.at("self_attn"), config.heads, shape.cache, bias=True)
        mlp = GatedMLP.of(own.at("mlp"), config.hidden_size, config.intermediate_size)
        layers.append(LlamaLayer(own, config, attention, mlp))
    return decoder(config, weights, shape, layers)


def read(fields: Fields) -> DecoderConfig:
    fields.neutral(hidden_act="silu", use_sliding_window=False, use_mrope=False)
    fields.idle("sliding_window", "max_window_layers")  # without effect where windows are off
    config = read_decoder(fields)
    fields.words("layer_types", ("full_attention",), config.num_layers)
    return config


FAMILY = Family("qwen2", ("Qwen2ForCausalLM",), read, build)
