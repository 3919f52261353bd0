"""Phi-3: Abdin et al., arXiv 2404.14219. Llama with fused projections, and longrope."""

from __future__ import annotations

import dataclasses

from onnx_iron.models.blocks import Attention, GatedMLP, Linear
from onnx_iron.models.decoder import Decoder, Shape, read_decoder
from onnx_iron.models.families.llama import LlamaLayer, decoder
from onnx_iron.models.families.mistral import MistralConfig, windowed
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights, rows


def parts(weights: Weights, name: str, inner: int, *sizes: int) -> list[Linear]:
    """The projections that a checkpoint keeps as one, one below the other."""
    whole = weights(f"{name}.weight", sum(sizes), inner)
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return [Linear(rows(whole, at, at + size)) for at, size in zip(begins, sizes, strict=True)]


def build(config: MistralConfig, weights: Weights, shape: Shape) -> Decoder:
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * dim, config.num_kv_heads * dim
    heads = dataclasses.replace(config.heads, window=windowed(config.window, shape.context))
    layers = []
    for i in range(config.num_layers):
        own = weights.at(f"model.layers.{i}")
        q, k, v = parts(own, "self_attn.qkv_proj", hidden, queries, keys, keys)
        o = Linear.of(own.at("self_attn.o_proj"), queries, hidden)
        attention = Attention(heads, q, k, v, o, cache=shape.cache, dtype=weights.dtype)
        gate, up = parts(own, "mlp.gate_up_proj", hidden, inner, inner)
        mlp = GatedMLP(gate, up, Linear.of(own.at("mlp.down_proj"), inner, hidden))
        layers.append(LlamaLayer(own, config, attention, mlp))
    return decoder(config, weights, shape, layers)


def read(fields: Fields) -> MistralConfig:
    fields.neutral(hidden_act="silu")
    window = fields.size("sliding_window") if fields.has("sliding_window") else None
    return MistralConfig(**vars(read_decoder(fields)), window=window)


FAMILY = Family("phi3", ("Phi3ForCausalLM",), read, build)
