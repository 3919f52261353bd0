"""Mistral: Jiang et al., arXiv 2310.06825. Llama, whose rows may see a window only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from onnx_iron.models.blocks import Attention, GatedMLP
from onnx_iron.models.decoder import Decoder, DecoderConfig, Shape, read_decoder
from onnx_iron.models.families.llama import LlamaLayer, decoder
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights


@dataclass(frozen=True, kw_only=True)
class MistralConfig(DecoderConfig):
    """A decoder's sizes.

    Attributes:
        window: how many entries a row sees, its own the last; None for all.
    """

    window: int | None


def windowed(window: int | None, context: int) -> int | None:
    """A window that leaves something out of a cache."""
    return window if window is not None and window < context else None


def build(config: MistralConfig, weights: Weights, shape: Shape) -> Decoder:
    window = windowed(config.window, shape.context)
    heads = dataclasses.replace(config.heads, window=window)
    layers = []
    for i in range(config.num_layers):
        own = weights.at(f"model.layers.{i}")
        attention = Attention.of(own.at("self_attn"), heads, shape.cache)
        mlp = GatedMLP.of(own.at("mlp"), config.hidden_size, config.intermediate_size)
        layers.append(LlamaLayer(own, config, attention, mlp))
    return decoder(config, weights, shape, layers)


def read(fields: Fields) -> MistralConfig:
    fields.neutral(hidden_act="silu")
    window = fields.size("sliding_window") if fields.has("sliding_window") else None
    return MistralConfig(**vars(read_decoder(fields)), window=window)


FAMILY = Family("mistral", ("MistralForCausalLM",), read, build)
