"""Gemma 3, its text model: Gemma Team, arXiv 2503.19786. Gemma 2 with norms of heads."""

from __future__ import annotations

from onnx_iron.models.decoder import Shape, read_sizes
from onnx_iron.models.families.gemma2 import Gemma, GemmaConfig, attention, neutral
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.rope import read_rope
from onnx_iron.models.weights import Weights

_SLIDING, _FULL = "sliding_attention", "full_attention"


def build(config: GemmaConfig, weights: Weights, shape: Shape) -> Gemma:
    return Gemma(config, weights, shape)


def read(fields: Fields) -> GemmaConfig:
    sizes = read_sizes(fields)
    layers, dim, length = sizes["num_layers"], sizes["head_dim"], sizes["context_length"]
    neutral(fields)
    # Each kind of layer has its own; older configurations name the windows' base alone.
    local = fields.positive("rope_local_base_freq", 10000.0)
    pattern = fields.size("_sliding_window_pattern", fields.size("sliding_window_pattern", 6))
    default = [_SLIDING if (i + 1) % pattern else _FULL for i in range(layers)]
    return GemmaConfig(
        **sizes,
        intermediate_size=fields.size("intermediate_size"),
        rms_norm_eps=fields.positive("rms_norm_eps", 1e-6),
        rope=read_rope(fields, dim, length, theta=1e6, kind=_FULL),
        sliding_rope=read_rope(fields, dim, length, theta=local, kind=_SLIDING, shared=False),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        layer_types=fields.words("layer_types", (_SLIDING, _FULL), layers) or tuple(default),
        head_norms=True,
        **attention(fields),
    )


FAMILY = Family("gemma3_text", ("Gemma3ForCausalLM",), read, build)
