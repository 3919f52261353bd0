"""What language models are built of: projections, norms, attention over a cache, gated products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron import functional as F
from onnx_iron.graph import Handle, State, Value, Weight, state
from onnx_iron.models.weights import Weights, derived


@dataclass(frozen=True)
class Call:
    """What all layers know of a call.

    Attributes:
        count: its rows, valid or not.
        position: where the first of them stands.
        angles: the rotary embedding of each row, (count, dim), by the kind of layer.
    """

    count: int
    position: Value
    angles: Mapping[str, Handle]

    def kept(self, new: Handle, cache: State) -> Any:
        """What an attention layer sees of keys or values: a cache, with these of the rows in it."""
        here = (..., slice(self.position, self.position + self.count), slice(None), slice(None))
        cache[here] = new
        return cache

    @property
    def place(self) -> Mapping[str, Any]:
        """Where the rows stand in what is kept, as attention takes it."""
        return {"position": self.position}


class Linear:
    """A projection, as ``torch.nn.Linear``."""

    def __init__(self, weight: Weight, bias: Weight | None = None) -> None:
        self.weight = weight
        self.bias = bias

    @classmethod
    def of(cls, weights: Weights, inner: int, outer: int, *, bias: bool = False) -> Linear:
        """By torch's names."""
        return cls(weights("weight", outer, inner), weights("bias", outer) if bias else None)

    def __call__(self, x: Any) -> Handle:
        return F.linear(x, self.weight, self.bias, precision=F.Precision.DEFAULT)


class RMSNorm:
    """A norm over the last axis; ``offset`` is added to its weight, as Gemma's norms do."""

    def __init__(self, weights: Weights, width: int, eps: float, *, offset: float = 0.0) -> None:
        weight = weights("weight", width)
        if offset:
            weight = derived(weight, weight.shape, lambda w: w.astype(np.float32) + offset)
        self.weight = weight
        self._eps = eps

    def __call__(self, x: Handle) -> Handle:
        return F.rms_norm(x, self.weight.shape[0], self.weight, self._eps)


class LayerNorm:
    """A layer norm over the last axis, with a bias."""

    def __init__(self, weights: Weights, width: int, eps: float) -> None:
        self.weight = weights("weight", width)
        self.bias = weights("bias", width)
        self._eps = eps

    def __call__(self, x: Handle) -> Handle:
        return F.layer_norm(x, self.weight.shape[0], self.weight, self.bias, self._eps)


class GatedMLP:
    """``down(activation(gate(x)) * up(x))``. Shazeer, arXiv 2002.05202."""

    def __init__(
        self,
        gate: Linear,
        up: Linear,
        down: Linear,
        activation: Callable[[Handle], Handle] = F.silu,
    ) -> None:
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down
        self._activation = activation

    @classmethod
    def of(
        cls,
        weights: Weights,
        hidden: int,
        inner: int,
        *,
        bias: bool = False,
        activation: Callable[[Handle], Handle] = F.silu,
    ) -> GatedMLP:
        """By the names that most checkpoints have."""
        return cls(
            Linear.of(weights.at("gate_proj"), hidden, inner, bias=bias),
            Linear.of(weights.at("up_proj"), hidden, inner, bias=bias),
            Linear.of(weights.at("down_proj"), inner, hidden, bias=bias),
            activation,
        )

    def __call__(self, x: Handle) -> Handle:
        return self.down_proj(self._activation(self.gate_proj(x)) * self.up_proj(x))


@dataclass(frozen=True, kw_only=True)
class Heads:
    """The sizes of an attention layer.

    Attributes:
        rope: which of a call's angles it takes.
        interleaved: rotary embedding turns pairs (2i, 2i + 1) of a head rather than its two halves.
        scale: what products are multiplied by; None for 1 / sqrt(head_dim).
        window: how many entries back a row sees, its own included; None for all.
        softcap: s of ``s tanh(product / s)``; None for none.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: str = "default"
    interleaved: bool = False
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None


class Attention:
    """Causal attention over a cache of static length, with grouped queries.

    Args:
        heads: its sizes.
        q, k, v, o: the projections.
        cache: the axes of keys and values before an entry's own, the last the cache's length.
        dtype: the cache's.
        q_norm, k_norm: norms of each head's queries and keys, before they turn.
    """

    def __init__(
        self,
        heads: Heads,
        q: Linear,
        k: Linear,
        v: Linear,
        o: Linear,
        *,
        cache: tuple[int, ...],
        dtype: Any,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
    ) -> None:
        self._heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = q, k, v, o
        self.q_norm, self.k_norm = q_norm, k_norm
        kept = (*cache, heads.num_kv_heads, heads.head_dim)
        self.keys: State = state(kept, dtype)
        self.values: State = state(kept, dtype)

    @classmethod
    def of(
        cls,
        weights: Weights,
        heads: Heads,
        cache: tuple[int, ...],
        *,
        bias: bool = False,
        out_bias: bool = False,
        out: str = "o_proj",
        norms: tuple[RMSNorm, RMSNorm] | None = None,
    ) -> Attention:
        """By the names that most checkpoints have."""
        hidden, dim = heads.hidden_size, heads.head_dim
        queries, keys = heads.num_heads * dim, heads.num_kv_heads * dim
        return cls(
            heads,
            Linear.of(weights.at("q_proj"), hidden, queries, bias=bias),
            Linear.of(weights.at("k_proj"), hidden, keys, bias=bias),
            Linear.of(weights.at("v_proj"), hidden, keys, bias=bias),
            Linear.of(weights.at(out), queries, hidden, bias=out_bias),
            cache=cache,
            dtype=weights.dtype,
            q_norm=norms[0] if norms else None,
            k_norm=norms[1] if norms else None,
        )

    def __call__(self, x: Handle, call: Call) -> Handle:
        heads, rows = self._heads, x.shape[:-1]
        key = self._turned(self.k_proj(x), heads.num_kv_heads, self.k_norm, call)
        keys = call.kept(key, self.keys)
        value = self.v_proj(x).reshape(*rows, heads.num_kv_heads, heads.head_dim)
        values = call.kept(value, self.values)
        y = F.scaled_dot_product_attention(
            self._turned(self.q_proj(x), heads.num_heads, self.q_norm, call),
            keys,
            values,
            is_causal=True,
            scale=heads.scale,
            enable_gqa=True,
            softcap=heads.softcap,
            window=heads.window,
            layout="rows_first",
            **call.place,
        )
        return self.o_proj(y.reshape(*rows, heads.num_heads * heads.head_dim))

    def _turned(self, x: Handle, number: int, norm: RMSNorm | None, call: Call) -> Handle:
        """Each head of ``x`` (..., count, number * head_dim), turned to its position."""
        heads, (*batch, count) = self._heads, x.shape[:-1]
        if norm is not None:
            x = norm(x.reshape(*batch, count * number, heads.head_dim))
        x = x.reshape(*batch, count, number, heads.head_dim)
        return F.rope(x, call.angles[heads.rope], interleaved=heads.interleaved)
