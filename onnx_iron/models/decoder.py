"""Decoders of text: the sizes that they share, and the body around their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from onnx_iron import functional as F
from onnx_iron.dtypes import INT32
from onnx_iron.graph import Graph, Handle, Value, Weight
from onnx_iron.graph.trace import Trace
from onnx_iron.models.blocks import Call, Heads, RMSNorm
from onnx_iron.models.fields import MOST_LAYERS, Fields
from onnx_iron.models.rope import Rope, read_rope
from onnx_iron.models.weights import Weights

Layer = Callable[[Handle, Call], Handle]


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A decoder's sizes.

    Attributes:
        rope: its rotary embedding.
        rope_interleaved: rotary embedding turns pairs (2i, 2i + 1) of a head, as GGUF files of
            Llama have their rows ordered for, rather than its two halves.
        tie_embeddings: the output head is the embedding.
        context_length: the most positions it was trained for.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Rope
    tie_embeddings: bool
    context_length: int
    rope_interleaved: bool = False

    @property
    def heads(self) -> Heads:
        """An attention layer's sizes."""
        return Heads(
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            interleaved=self.rope_interleaved,
        )


@dataclass(frozen=True)
class Shape:
    """What an export chooses for a model.

    Attributes:
        context: the cache's length, the most positions.
        chunk: the most rows of a call.
        logits: "last" for those of the last valid row, "all" for every row's.
        batch: B, how many sequences of one length each call runs; None for one, without an axis.

    Raises:
        ValueError: a context, a chunk or a batch below 1, or ``logits`` of another kind.
    """

    context: int
    chunk: int = 1
    logits: str = "last"
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"context is {self.context}; expected at least 1")
        if not 1 <= self.chunk <= self.context:
            raise ValueError(f"chunk is {self.chunk}; expected 1..{self.context} (the context)")
        if self.logits not in ("last", "all"):
            raise ValueError(f"logits is {self.logits!r}; expected 'last' or 'all'")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch is {self.batch}; expected at least 1, or None")

    @property
    def sequences(self) -> tuple[int, ...]:
        """The axis of a batch, or none."""
        return () if self.batch is None else (self.batch,)

    @property
    def cache(self) -> tuple[int, ...]:
        """The axes of a cache before an entry's own."""
        return (*self.sequences, self.context)


class Decoder(Graph):
    """Layers between an embedding and a head, over caches of static length.

    Traced for several tokens it is a prompt chunk, of which the first ``rows`` count; for one, a
    decode step. ``position`` is where the first token stands. Of a batch, ids are (B, tokens), and
    all sequences have one length and stand at one position.

    Args:
        embedding: (vocabulary, hidden).
        layers: each takes the rows, and what there is to know of the call.
        norm: the last one.
        head: (vocabulary, hidden); the embedding itself where they are tied.
        ropes: the rotary embeddings by the kind of layer.
        shape: what an export chooses.
    """

    def __init__(
        self,
        embedding: Weight,
        layers: Sequence[Layer],
        norm: RMSNorm,
        head: Weight,
        ropes: Mapping[str, Rope],
        shape: Shape,
    ) -> None:
        self._shape = shape
        self.embed_tokens = embedding
        self.rope = {kind: Weight.of(rope.angles(shape.context)) for kind, rope in ropes.items()}
        self.layers = list(layers)
        self.norm = norm
        self.lm_head = head

    bounds: ClassVar = {"input_ids": {-1: "rows"}}

    def body(self, input_ids: Handle, *, position: Value, rows: Value) -> dict[str, Handle]:
        *batch, count = input_ids.shape
        angles = {}
        for kind, table in self.rope.items():
            here = table[position : position + count]
            angles[kind] = (here[:rows] if count > 1 else here).copy()
        h = self.through(input_ids, Call(count, position, angles))
        if count > 1 and self._shape.logits == "last":
            h = h[..., rows - 1, :].copy().reshape(*batch, 1, h.shape[-1])
        return {"logits": self.logits(self.normed(h))}

    def through(self, input_ids: Handle, call: Call) -> Handle:
        """The rows that the last layer gives."""
        h = self.embedded(input_ids)
        for layer in self.layers:
            h = layer(h, call)
        return h

    def embedded(self, input_ids: Handle) -> Handle:
        """The rows that the first layer gets."""
        return F.embedding(input_ids, self.embed_tokens)

    def normed(self, h: Handle) -> Handle:
        """The rows that the head gets."""
        return self.norm(h)

    def logits(self, h: Handle) -> Handle:
        """What the head makes of the last norm's rows."""
        return F.linear(h, self.lm_head, precision=F.Precision.DEFAULT)

    def traces(self) -> dict[str, Trace]:
        """``prefill``, a chunk of a prompt, where the shape has one, and ``decode``, a step."""
        chunk, batch = self._shape.chunk, self._shape.sequences
        prefill = {"prefill": self.trace(input_ids=((*batch, chunk), INT32))} if chunk > 1 else {}
        return {**prefill, "decode": self.trace(input_ids=((*batch, 1), INT32))}


def read_sizes(fields: Fields) -> dict[str, Any]:
    """The sizes that most configurations name alike, as a config's arguments.

    Raises:
        ValueError: one is missing, or the heads don't fit one another.
    """
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", kv_heads, f"a divisor of {heads} heads")
    if not fields.has("head_dim") and hidden % heads:
        raise fields.error("num_attention_heads", heads, f"a divisor of {hidden}, the hidden size")
    head_dim = fields.size("head_dim", max(hidden // heads, 1))
    if head_dim % 2:
        raise fields.error("head_dim", head_dim, "an even number, for rotary embedding")
    return {
        "vocab_size": fields.size("vocab_size"),
        "hidden_size": hidden,
        "num_layers": fields.size("num_hidden_layers", most=MOST_LAYERS),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "context_length": fields.size("max_position_embeddings"),
    }


def read_decoder(fields: Fields, *, tied: bool = False, theta: float = 10000.0) -> DecoderConfig:
    """A decoder of Llama's kind by the usual names.

    Args:
        fields: the configuration.
        tied: whether head and embedding are tied where it doesn't say.
        theta: of the rotary embedding where it doesn't say.
    """
    sizes = read_sizes(fields)
    return DecoderConfig(
        **sizes,
        intermediate_size=fields.size("intermediate_size"),
        rms_norm_eps=fields.positive("rms_norm_eps", 1e-6),
        rope=read_rope(fields, sizes["head_dim"], sizes["context_length"], theta=theta),
        tie_embeddings=fields.flag("tie_word_embeddings", tied),
    )


def head(weights: Weights, embedding: Weight, config: DecoderConfig) -> Weight:
    """The weight of the output head: the embedding, or its own."""
    return embedding if config.tie_embeddings else weights("lm_head.weight", *embedding.shape)
