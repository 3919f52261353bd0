"""Llama: the decoder of Touvron et al., arXiv 2302.13971, with grouped queries, over a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnx_iron import functional as F
from onnx_iron.dtypes import FLOAT32, INT32, Array, as_dtype
from onnx_iron.export import ExportReport, Progress, export
from onnx_iron.graph import Graph, Handle, Value, Weight, state


@dataclass(frozen=True)
class LlamaConfig:
    """A model's sizes.

    Attributes:
        rope_interleaved: rotary embedding turns pairs (2i, 2i + 1) of a head, as GGUF files have
            their rows ordered for, rather than its two halves.
        tie_embeddings: the output head is the embedding.
        context_length: the most positions it was trained for.
        rope_factors: what each rotary frequency is divided by, head_dim / 2 numbers; None for 1.
            Llama 3.1 and later stretch their low frequencies so.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_interleaved: bool
    tie_embeddings: bool
    context_length: int
    rope_factors: tuple[float, ...] | None = None


class Checkpoint(Protocol):
    """Where a model's weights are read, by GGUF's names."""

    config: LlamaConfig

    def weight(self, name: str, dtype: Any) -> Weight: ...


class Layer:
    """The weights and the cache of one decoder layer."""

    def __init__(
        self, config: LlamaConfig, weight: Callable[[str], Weight], context: int, dtype: Any
    ) -> None:
        self.attn_norm = weight("attn_norm")
        self.q = weight("attn_q")
        self.k = weight("attn_k")
        self.v = weight("attn_v")
        self.o = weight("attn_output")
        self.ffn_norm = weight("ffn_norm")
        self.gate = weight("ffn_gate")
        self.up = weight("ffn_up")
        self.down = weight("ffn_down")
        cache = (context, config.num_kv_heads, config.head_dim)
        self.keys = state(cache, dtype)
        self.values = state(cache, dtype)


class Llama(Graph):
    """A Llama decoder over a cache of static length.

    Traced for several tokens it is a prompt chunk, of which the first ``rows`` count; for one, a
    decode step. ``position`` is where the first token stands.

    Args:
        config: the model's sizes.
        weight: a tensor by its GGUF name, all of one dtype.
        context: the cache's length, the most positions.
        logits: "last" for those of the last valid row, "all" for every row's.

    Raises:
        ValueError: a context below 1, or ``logits`` of another kind.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weight: Callable[[str], Weight],
        *,
        context: int,
        logits: str = "last",
    ) -> None:
        if context < 1:
            raise ValueError(f"Llama: context is {context}; expected at least 1")
        if logits not in ("last", "all"):
            raise ValueError(f"Llama: logits is {logits!r}; expected 'last' or 'all'")
        self._config = config
        self._logits = logits
        self.embedding = weight("token_embd.weight")
        dtype = self.embedding.dtype
        self.rope_angles = Weight.of(rope_angles(config, context))
        self.layers = [
            Layer(config, lambda name, i=i: weight(f"blk.{i}.{name}.weight"), context, dtype)  # type: ignore[misc]
            for i in range(config.num_layers)
        ]
        self.norm = weight("output_norm.weight")
        self.head = self.embedding if config.tie_embeddings else weight("output.weight")

    def body(self, input_ids: Handle, *, position: Value, rows: Value) -> dict[str, Handle]:
        count = input_ids.shape[0]
        if count > 1:
            input_ids = input_ids[:rows]
        angles = self.rope_angles[position : position + count]
        if count > 1:
            angles = angles[:rows]
        turned = angles.copy()
        h = F.embedding(input_ids, self.embedding)
        for layer in self.layers:
            h = h + self._attention(self._norm(h, layer.attn_norm), layer, turned, position)
            h = h + self._feed_forward(self._norm(h, layer.ffn_norm), layer)
        if count > 1 and self._logits == "last":
            h = h[rows - 1].copy().reshape(1, self._config.hidden_size)
        return {"logits": self._linear(self._norm(h, self.norm), self.head)}

    def _norm(self, h: Handle, weight: Weight) -> Handle:
        return F.rms_norm(h, self._config.hidden_size, weight, self._config.rms_norm_eps)

    def _linear(self, h: Handle, weight: Weight) -> Handle:
        return F.linear(h, weight, precision=F.Precision.DEFAULT)

    def _attention(self, h: Handle, layer: Layer, angles: Handle, position: Value) -> Handle:
        config, count = self._config, h.shape[0]

        def heads(weight: Weight, number: int, turn: bool) -> Handle:
            rows = self._linear(h, weight)
            if turn:
                flat = rows.reshape(count * number, config.head_dim)
                rows = F.rope(flat, angles, interleaved=config.rope_interleaved)
            return rows.reshape(count, number, config.head_dim)

        layer.keys[position : position + count] = heads(layer.k, config.num_kv_heads, True)
        layer.values[position : position + count] = heads(layer.v, config.num_kv_heads, False)
        y = F.scaled_dot_product_attention(
            heads(layer.q, config.num_heads, True),
            layer.keys,
            layer.values,
            position=position,
            is_causal=True,
            enable_gqa=True,
        )
        return self._linear(y.reshape(count, config.num_heads * config.head_dim), layer.o)

    def _feed_forward(self, h: Handle, layer: Layer) -> Handle:
        gated = F.silu(self._linear(h, layer.gate)) * self._linear(h, layer.up)
        return self._linear(gated, layer.down)


def rope_angles(config: LlamaConfig, positions: int) -> Array:
    """The rows (cos0, sin0, cos1, sin1, ...) of the first positions, float32
    (positions, head_dim): frequency i is theta ** (-2 i / head_dim), over its factor where the
    model has one. Su et al., arXiv 2104.09864.
    """
    frequencies = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    if config.rope_factors is not None:
        frequencies = frequencies / np.asarray(config.rope_factors)
    angles = np.arange(positions)[:, None] * frequencies
    return (
        np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        .reshape(positions, config.head_dim)
        .astype(np.float32)
    )


def export_llama(
    checkpoint: Checkpoint,
    directory: str | Path,
    *,
    dtype: Any = "bfloat16",
    context: int = 1024,
    chunk: int = 64,
    logits: str = "last",
    dialect: str = "iron",
    state_dtype: Any = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write ``prefill.onnx`` (a chunk of rows), ``decode.onnx`` (one) and their shared weights.

    States are of the weights' dtype where not said otherwise: a session keeps them in place.

    Args:
        checkpoint: a Llama model.
        directory: made where it is missing.
        dtype: float32 or bfloat16, of the weights and of every step's result.
        context: the cache's length.
        chunk: the rows of a prefill call.
        logits: "last" or "all" rows of a prefill chunk.
        dialect: see :func:`onnx_iron.export`.
        state_dtype: the states' at the boundary: float32 for ``InferenceSession.run``, which takes
            no bfloat16 arrays; None keeps ``dtype``.
        progress: see :func:`onnx_iron.export`.

    Raises:
        ValueError: a chunk below 2 or longer than the context.
    """
    if not 2 <= chunk <= context:
        raise ValueError(f"export_llama(): chunk is {chunk}; expected 2..{context} (the context)")
    kind = as_dtype(dtype)
    graph = Llama(
        checkpoint.config,
        lambda name: checkpoint.weight(name, kind),
        context=context,
        logits=logits,
    )
    return export(
        {
            "prefill": graph.trace(input_ids=((chunk,), INT32)),
            "decode": graph.trace(input_ids=((1,), INT32)),
        },
        directory,
        dialect=dialect,
        io_dtype=FLOAT32,
        state_dtype=state_dtype,
        metadata={"onnx_iron.context": str(context)},
        progress=progress,
    )
