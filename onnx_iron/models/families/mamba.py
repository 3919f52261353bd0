"""Mamba: selective scans between convolutions and gates, and no attention. arXiv 2312.00752."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnx_iron import functional as F
from onnx_iron.dtypes import FLOAT32
from onnx_iron.graph import Handle, state
from onnx_iron.models.blocks import Call, Linear, RMSNorm
from onnx_iron.models.decoder import Decoder, Shape
from onnx_iron.models.family import ENDLESS, Family
from onnx_iron.models.fields import MOST_LAYERS, Fields
from onnx_iron.models.weights import Weights, derived, rows


@dataclass(frozen=True, kw_only=True)
class MambaConfig:
    """A model's sizes.

    Attributes:
        inner_size: the channels of a scan.
        state_size: N, the numbers that each channel carries.
        step_rank: what a channel's step is projected from.
        conv_kernel: K, the taps of a convolution.
        bias: the projections into and out of a layer have biases.
        conv_bias: so do the convolutions.
        scan_norm_eps: of norms of what the scan's operands are projected to; None for no norms.
        wide_residual: what layers add to is float32 in every model.
        tie_embeddings: the output head is the embedding.
        context_length: the most positions: no cache bounds them.
    """

    vocab_size: int
    hidden_size: int
    inner_size: int
    state_size: int
    step_rank: int
    num_layers: int
    conv_kernel: int
    norm_eps: float
    bias: bool
    conv_bias: bool
    scan_norm_eps: float | None
    wide_residual: bool
    tie_embeddings: bool
    context_length: int = ENDLESS


class Mixer:
    """A convolution and a selective scan, multiplied by a gate, between two projections."""

    def __init__(self, weights: Weights, config: MambaConfig, shape: Shape) -> None:
        width, inner, taps = config.hidden_size, config.inner_size, config.conv_kernel
        rank, states = config.step_rank, config.state_size
        into = weights("in_proj.weight", 2 * inner, width)
        bias = weights("in_proj.bias", 2 * inner) if config.bias else None
        self.in_proj, self.gate_proj = (
            Linear(
                rows(into, begin, begin + inner),
                None if bias is None else rows(bias, begin, begin + inner),
            )
            for begin in (0, inner)
        )
        # torch keeps a filter a channel, (inner, 1, K); a tap's row is all channels'.
        filters = weights("conv1d.weight", inner, 1, taps)
        self.taps = derived(filters, (taps, inner), lambda w: w[:, 0].T)
        self.conv_bias = weights("conv1d.bias", inner) if config.conv_bias else None
        made = weights("x_proj.weight", rank + 2 * states, inner)
        parts = (0, rank), (rank, rank + states), (rank + states, rank + 2 * states)
        self.step, self.b, self.c = (Linear(rows(made, *part)) for part in parts)
        self.dt_proj = Linear(weights("dt_proj.weight", inner, rank))
        # The constants of the recurrence are float32 whatever the weights are.
        self.dt_bias = weights.wide("dt_proj.bias", inner)
        self.d = weights.wide("D", inner)
        logarithm = weights.wide("A_log", inner, states)
        self.a = derived(logarithm, logarithm.shape, lambda array: -np.exp(array))
        self.out_proj = Linear.of(weights.at("out_proj"), inner, width, bias=config.bias)
        self.conv = F.conv_state(taps, inner, shape.chunk, weights.dtype, batch=shape.batch)
        self.scanned = state((*shape.sequences, inner, states), FLOAT32)
        self._norm_eps = config.scan_norm_eps

    def __call__(self, h: Handle) -> Handle:
        x = F.causal_conv1d(
            self.in_proj(h), self.taps, self.conv, bias=self.conv_bias, activation="silu"
        )
        y = F.selective_scan(
            x,
            self.dt_proj(self._normed(self.step(x))),
            self.a,
            self._normed(self.b(x)),
            self._normed(self.c(x)),
            self.scanned,
            D=self.d,
            z=self.gate_proj(h),
            dt_bias=self.dt_bias,
            dt_softplus=True,
        )
        return self.out_proj(y)

    def _normed(self, x: Handle) -> Handle:
        return x if self._norm_eps is None else F.rms_norm(x, x.shape[-1], eps=self._norm_eps)


class MambaLayer:
    """A mixer after a norm, added to what it was given."""

    def __init__(self, weights: Weights, config: MambaConfig, shape: Shape) -> None:
        self.norm = RMSNorm(weights.at("norm"), config.hidden_size, config.norm_eps)
        self.mixer = Mixer(weights.at("mixer"), config, shape)
        self._dtype = weights.dtype

    def __call__(self, h: Handle, call: Call) -> Handle:
        mixed = self.mixer(self.norm(F.to(h, self._dtype)))
        added: Handle = h + F.to(mixed, h.dtype)
        return added


class Mamba(Decoder):
    """A decoder whose layers keep no row, so that nothing depends on positions."""

    def __init__(self, config: MambaConfig, weights: Weights, shape: Shape) -> None:
        body = weights.at("backbone")
        embedding = body("embeddings.weight", config.vocab_size, config.hidden_size)
        tied = config.tie_embeddings
        super().__init__(
            embedding,
            [MambaLayer(body.at(f"layers.{i}"), config, shape) for i in range(config.num_layers)],
            RMSNorm(body.at("norm_f"), config.hidden_size, config.norm_eps),
            embedding if tied else weights("lm_head.weight", *embedding.shape),
            {},
            shape,
        )
        self._dtype = weights.dtype
        self._residual = FLOAT32 if config.wide_residual else weights.dtype

    def embedded(self, input_ids: Handle) -> Handle:
        return F.to(super().embedded(input_ids), self._residual)

    def normed(self, h: Handle) -> Handle:
        return self.norm(F.to(h, self._dtype))


def read(fields: Fields) -> MambaConfig:
    hidden = fields.size("hidden_size")
    inner = fields.size("intermediate_size", int(fields.positive("expand", 2) * hidden))
    automatic = fields.raw("time_step_rank", "auto") == "auto"
    rank = math.ceil(hidden / 16) if automatic else fields.size("time_step_rank")
    fields.choice("hidden_act", ("silu",), "silu")
    fields.neutral(rms_norm=True, ssm_cfg=({},))
    # What tells how the weights were drawn, how transformers computes, or what older
    # configurations say twice.
    fields.idle(
        *("time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme"),
        *("time_step_floor", "rescale_prenorm_residual", "use_mambapy", "use_associative_scan"),
        *("d_inner", "d_model", "n_layer", "fused_add_norm", "pad_vocab_size_multiple"),
    )
    return MambaConfig(
        vocab_size=fields.size("vocab_size"),
        hidden_size=hidden,
        inner_size=inner,
        state_size=fields.size("state_size", 16),
        step_rank=rank,
        num_layers=fields.size("num_hidden_layers", most=MOST_LAYERS),
        conv_kernel=fields.size("conv_kernel", 4),
        norm_eps=fields.positive("layer_norm_epsilon", 1e-5),
        bias=fields.flag("use_bias", False),
        conv_bias=fields.flag("use_conv_bias", True),
        scan_norm_eps=None,
        wide_residual=fields.flag("residual_in_fp32", True),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
    )


FAMILY = Family("mamba", ("MambaForCausalLM",), read, Mamba, endless=True)
