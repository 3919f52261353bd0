"""LFM2: short convolutions with carried rows, and attention in some layers. Liquid AI, 2025."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_iron import functional as F
from onnx_iron.graph import Handle
from onnx_iron.models.blocks import Attention, Call, GatedMLP, Linear, RMSNorm
from onnx_iron.models.decoder import Decoder, DecoderConfig, Shape, head, read_sizes
from onnx_iron.models.family import Family
from onnx_iron.models.fields import Fields
from onnx_iron.models.rope import read_rope
from onnx_iron.models.weights import Weights, derived, rows

_CONV, _ATTENTION = "conv", "full_attention"


@dataclass(frozen=True, kw_only=True)
class Lfm2Config(DecoderConfig):
    """A decoder's sizes.

    Attributes:
        conv_kernel: K, the taps of a convolution.
        conv_bias: projections and taps of a convolution have biases.
        layer_types: "conv" or "full_attention" for each layer.
    """

    conv_kernel: int
    conv_bias: bool
    layer_types: tuple[str, ...]


class ShortConv:
    """``out(C * conv(B * x))``, B, C and x being projections of the rows."""

    def __init__(self, weights: Weights, config: Lfm2Config, shape: Shape) -> None:
        width, taps = config.hidden_size, config.conv_kernel
        inner = weights("in_proj.weight", 3 * width, width)
        self.b, self.c, self.x = (rows(inner, k * width, (k + 1) * width) for k in range(3))
        self.biases = None
        self.conv_bias = None
        if config.conv_bias:
            bias = weights("in_proj.bias", 3 * width)
            self.biases = [rows(bias, k * width, (k + 1) * width) for k in range(3)]
            self.conv_bias = weights("conv.bias", width)
        # torch keeps a filter a channel, (width, 1, K); a tap's row is all channels'.
        filters = weights("conv.weight", width, 1, taps)
        self.taps = derived(filters, (taps, width), lambda w: w[:, 0].T)
        self.out_proj = Linear.of(weights.at("out_proj"), width, width, bias=config.conv_bias)
        self.conv = F.conv_state(taps, width, shape.chunk, weights.dtype, batch=shape.batch)

    def __call__(self, h: Handle, call: Call) -> Handle:
        biases = self.biases or (None, None, None)
        b, c, x = (
            F.linear(h, weight, bias, precision=F.Precision.DEFAULT)
            for weight, bias in zip((self.b, self.c, self.x), biases, strict=True)
        )
        return self.out_proj(c * F.causal_conv1d(b * x, self.taps, self.conv, bias=self.conv_bias))


class Lfm2Layer:
    """A convolution or attention, then a gated product, each after a norm."""

    def __init__(
        self, weights: Weights, config: Lfm2Config, operator: ShortConv | Attention
    ) -> None:
        width, inner, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        self.operator_norm = RMSNorm(weights.at("operator_norm"), width, eps)
        self.operator = operator
        self.ffn_norm = RMSNorm(weights.at("ffn_norm"), width, eps)
        mlp = weights.at("feed_forward")
        self.feed_forward = GatedMLP(
            Linear.of(mlp.at("w1"), width, inner),
            Linear.of(mlp.at("w3"), width, inner),
            Linear.of(mlp.at("w2"), inner, width),
        )

    def __call__(self, h: Handle, call: Call) -> Handle:
        h = h + self.operator(self.operator_norm(h), call)
        result: Handle = h + self.feed_forward(self.ffn_norm(h))
        return result


def build(config: Lfm2Config, weights: Weights, shape: Shape) -> Decoder:
    body = weights.at("model")
    embedding = body("embed_tokens.weight", config.vocab_size, config.hidden_size)
    layers = []
    for i, kind in enumerate(config.layer_types):
        own = body.at(f"layers.{i}")
        operator: ShortConv | Attention
        if kind == _CONV:
            operator = ShortConv(own.at("conv"), config, shape)
        else:
            attention = own.at("self_attn")
            norms = (
                RMSNorm(attention.at("q_layernorm"), config.head_dim, config.rms_norm_eps),
                RMSNorm(attention.at("k_layernorm"), config.head_dim, config.rms_norm_eps),
            )
            operator = Attention.of(
                attention, config.heads, shape.cache, out="out_proj", norms=norms
            )
        layers.append(Lfm2Layer(own, config, operator))
    return Decoder(
        embedding,
        layers,
        RMSNorm(body.at("embedding_norm"), config.hidden_size, config.rms_norm_eps),
        head(weights, embedding, config),
        {"default": config.rope},
        shape,
    )


def read(fields: Fields) -> Lfm2Config:
    sizes = read_sizes(fields)
    tied = fields.flag("tie_word_embeddings", True)
    return Lfm2Config(
        **sizes,
        intermediate_size=_inner(fields),
        rms_norm_eps=fields.positive("norm_eps", 1e-5),
        rope=read_rope(fields, sizes["head_dim"], sizes["context_length"], theta=1e6),
        tie_embeddings=fields.flag("tie_embedding", tied),
        conv_kernel=fields.size("conv_L_cache", 3),
        conv_bias=fields.flag("conv_bias", False),
        layer_types=_layer_types(fields, sizes["num_layers"]),
    )


def _inner(fields: Fields) -> int:
    """The width of the gated product, which a configuration may give before it is adjusted."""
    inner = fields.size("block_ff_dim", fields.size("intermediate_size", 12288))
    multiple = fields.size("block_multiple_of", 256)
    factor = fields.positive("block_ffn_dim_multiplier", 1.0)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(factor * int(2 * inner / 3))
    return multiple * -(-inner // multiple)


def _layer_types(fields: Fields, layers: int) -> tuple[str, ...]:
    places = fields.raw("full_attn_idxs")
    given = fields.words("layer_types", (_CONV, _ATTENTION), layers)
    # What older configurations say twice, or of how they were trained.
    fields.idle(
        *("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale"),
        *("block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init"),
        *("num_heads", "theta"),
    )
    fields.neutral(block_use_swiglu=True, use_pos_enc=True)
    if given is not None:
        return given
    if places is None:
        places = list(range(layers))
    if not isinstance(places, list) or any(
        type(place) is not int or not 0 <= place < layers for place in places
    ):
        raise fields.error("full_attn_idxs", places, f"numbers of layers, 0..{layers - 1}")
    return tuple(_ATTENTION if i in places else _CONV for i in range(layers))


FAMILY = Family("lfm2", ("Lfm2ForCausalLM",), read, build)
