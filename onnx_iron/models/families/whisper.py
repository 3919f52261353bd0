"""Whisper's encoder: Radford et al., arXiv 2212.04356. Convolutions, then layers that see all."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_iron import functional as F
from onnx_iron.graph import Graph, Handle
from onnx_iron.graph.trace import Trace
from onnx_iron.models.blocks import LayerNorm, Linear
from onnx_iron.models.decoder import Shape
from onnx_iron.models.families.bert import ACTIVATIONS
from onnx_iron.models.family import Family
from onnx_iron.models.fields import MOST_LAYERS, Fields
from onnx_iron.models.weights import Weights, rows

_EPS = 1e-5
_KERNEL, _STRIDE = 3, 2
_MASKING = ("prob", "length", "min_masks")


@dataclass(frozen=True, kw_only=True)
class WhisperConfig:
    """The encoder's sizes; ``context_length`` is its positions, each of two frames."""

    mels: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    activation: str
    context_length: int


class WhisperLayer:
    """Attention over all rows, then a product through an activation, a norm before each."""

    def __init__(self, weights: Weights, config: WhisperConfig) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        attention = weights.at("self_attn")
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear.of(attention.at(name), hidden, hidden, bias=name != "k_proj")
            for name in ("q_proj", "k_proj", "v_proj", "out_proj")
        )
        self.self_attn_layer_norm = LayerNorm(weights.at("self_attn_layer_norm"), hidden, _EPS)
        self.fc1 = Linear.of(weights.at("fc1"), hidden, inner, bias=True)
        self.fc2 = Linear.of(weights.at("fc2"), inner, hidden, bias=True)
        self.final_layer_norm = LayerNorm(weights.at("final_layer_norm"), hidden, _EPS)
        self._heads = config.num_heads
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, h: Handle) -> Handle:
        *rows, hidden = h.shape
        normed = self.self_attn_layer_norm(h)
        query, key, value = (
            projection(normed).reshape(*rows, self._heads, hidden // self._heads)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        seen = F.scaled_dot_product_attention(query, key, value, layout="rows_first")
        h = h + self.out_proj(seen.reshape(*rows, hidden))
        result: Handle = h + self.fc2(self._activation(self.fc1(self.final_layer_norm(h))))
        return result


class WhisperEncoder(Graph):
    """A log-mel spectrogram to a row for each two of its frames.

    Args:
        config: its sizes.
        weights: by the names of ``WhisperModel``.
        shape: ``context`` is the positions of a call; its spectrogram has twice as many frames.
    """

    def __init__(self, config: WhisperConfig, weights: Weights, shape: Shape) -> None:
        hidden, own = config.hidden_size, weights.at("encoder")
        first, second = own.at("conv1"), own.at("conv2")
        self.conv1 = first("weight", hidden, config.mels, _KERNEL)
        self.conv1_bias = first("bias", hidden)
        self.conv2 = second("weight", hidden, hidden, _KERNEL)
        self.conv2_bias = second("bias", hidden)
        positions = own("embed_positions.weight", config.context_length, hidden)
        self.embed_positions = rows(positions, 0, shape.context)
        self.layers = [
            WhisperLayer(own.at(f"layers.{i}"), config) for i in range(config.num_layers)
        ]
        self.layer_norm = LayerNorm(own.at("layer_norm"), hidden, _EPS)
        self._frames = (*shape.sequences, config.mels, shape.context * _STRIDE)

    def body(self, input_features: Handle) -> dict[str, Handle]:
        h = F.gelu(F.conv1d(input_features, self.conv1, self.conv1_bias, padding=1))
        h = F.gelu(F.conv1d(h, self.conv2, self.conv2_bias, stride=_STRIDE, padding=1))
        h = h.transpose(-1, -2) + self.embed_positions
        for layer in self.layers:
            h = layer(h)
        return {"last_hidden_state": self.layer_norm(h)}

    def traces(self) -> dict[str, Trace]:
        """``encoder``, a whole window of audio."""
        return {"encoder": self.trace(input_features=(self._frames, self.conv1.dtype))}


def read(fields: Fields) -> WhisperConfig:
    hidden, heads = fields.size("d_model"), fields.size("encoder_attention_heads")
    if hidden % heads:
        raise fields.error("encoder_attention_heads", heads, f"a divisor of {hidden}, 'd_model'")
    # Of the decoder, of training, and of what is made of the decoder's tokens.
    fields.idle(
        *("decoder_attention_heads", "decoder_ffn_dim", "decoder_layers", "decoder_layerdrop"),
        *("max_target_positions", "vocab_size", "scale_embedding", "tie_word_embeddings"),
        *("activation_dropout", "dropout", "encoder_layerdrop", "init_std"),
        *("apply_spec_augment", "classifier_proj_size", "use_weighted_layer_sum"),
        *(f"mask_{axis}_{what}" for axis in ("time", "feature") for what in _MASKING),
        *("begin_suppress_tokens", "suppress_tokens", "forced_decoder_ids", "max_length"),
        *("median_filter_width", "num_hidden_layers"),
    )
    return WhisperConfig(
        mels=fields.size("num_mel_bins", 80),
        hidden_size=hidden,
        intermediate_size=fields.size("encoder_ffn_dim"),
        num_layers=fields.size("encoder_layers", most=MOST_LAYERS),
        num_heads=heads,
        activation=fields.choice("activation_function", tuple(ACTIVATIONS), "gelu"),
        context_length=fields.size("max_source_positions", 1500),
    )


FAMILY = Family(
    "whisper",
    ("WhisperForConditionalGeneration", "WhisperModel"),
    read,
    WhisperEncoder,
    generates=False,
    whole=True,
    prefix="model.",
    unused=("decoder.", "proj_out."),
)
