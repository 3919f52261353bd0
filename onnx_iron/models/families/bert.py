"""BERT's encoder: Devlin et al., arXiv 1810.04805; also MiniLM, Wang et al., arXiv 2002.10957."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from onnx_iron import functional as F
from onnx_iron.dtypes import INT32
from onnx_iron.graph import Graph, Handle
from onnx_iron.graph.trace import Trace
from onnx_iron.models.blocks import LayerNorm, Linear
from onnx_iron.models.decoder import Shape
from onnx_iron.models.family import Family
from onnx_iron.models.fields import MOST_LAYERS, Fields
from onnx_iron.models.weights import Weights

ACTIVATIONS: dict[str, Callable[[Handle], Handle]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """An encoder's sizes; ``context_length`` is the most tokens of a text."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    type_vocab_size: int
    layer_norm_eps: float
    activation: str
    context_length: int


class BertLayer:
    """Attention over all valid rows, then a product through an activation, a norm after each."""

    def __init__(self, weights: Weights, config: BertConfig) -> None:
        hidden, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        attention = weights.at("attention")
        self.query, self.key, self.value = (
            Linear.of(attention.at(f"self.{name}"), hidden, hidden, bias=True)
            for name in ("query", "key", "value")
        )
        self.attention_output = Linear.of(attention.at("output.dense"), hidden, hidden, bias=True)
        self.attention_norm = LayerNorm(attention.at("output.LayerNorm"), hidden, eps)
        self.intermediate = Linear.of(weights.at("intermediate.dense"), hidden, inner, bias=True)
        self.output = Linear.of(weights.at("output.dense"), inner, hidden, bias=True)
        self.output_norm = LayerNorm(weights.at("output.LayerNorm"), hidden, eps)
        self._heads = config.num_heads
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, h: Handle, mask: Handle | None) -> Handle:
        *rows, hidden = h.shape
        query, key, value = (
            projection(h).reshape(*rows, self._heads, hidden // self._heads)
            for projection in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, layout="rows_first"
        )
        h = self.attention_norm(h + self.attention_output(seen.reshape(*rows, hidden)))
        return self.output_norm(h + self.output(self._activation(self.intermediate(h))))


class Bert(Graph):
    """A text to a row for each of its tokens; or of a batch each text, as its mask has it.

    Texts of a batch are filled up to the longest of them. ``attention_mask`` (B, tokens), which
    one text by itself does not need, is 0 where a text is filled up; the rows there mean nothing.

    Args:
        config: its sizes.
        weights: by the names of ``BertModel``.
        shape: ``context`` is the most tokens of a text.
    """

    bounds: ClassVar = {
        "input_ids": {-1: "rows"},
        "token_type_ids": {-1: "rows"},
        "attention_mask": {-1: "rows"},
    }

    def __init__(self, config: BertConfig, weights: Weights, shape: Shape) -> None:
        hidden = config.hidden_size
        tables = weights.at("embeddings")
        self.word_embeddings = tables("word_embeddings.weight", config.vocab_size, hidden)
        self.position_embeddings = tables(
            "position_embeddings.weight", config.context_length, hidden
        )
        self.token_type_embeddings = tables(
            "token_type_embeddings.weight", config.type_vocab_size, hidden
        )
        self.embeddings_norm = LayerNorm(tables.at("LayerNorm"), hidden, config.layer_norm_eps)
        self.layers = [
            BertLayer(weights.at(f"encoder.layer.{i}"), config) for i in range(config.num_layers)
        ]
        self._ids = (*shape.sequences, shape.context)

    def body(self, input_ids: Handle, token_type_ids: Handle) -> dict[str, Handle]:
        return self._encoded(input_ids, token_type_ids, None)

    def of_batch(
        self, input_ids: Handle, token_type_ids: Handle, attention_mask: Handle
    ) -> dict[str, Handle]:
        """The body of a batch."""
        # One for all heads and rows of a text.
        mask = (attention_mask > 0)[:, None, None]
        return self._encoded(input_ids, token_type_ids, mask)

    def _encoded(
        self, input_ids: Handle, token_type_ids: Handle, mask: Handle | None
    ) -> dict[str, Handle]:
        h = F.embedding(input_ids, self.word_embeddings)
        h = h + F.embedding(token_type_ids, self.token_type_embeddings)
        h = h + self.position_embeddings[: input_ids.shape[-1]]
        h = self.embeddings_norm(h)
        for layer in self.layers:
            h = layer(h, mask)
        return {"last_hidden_state": h}

    def traces(self) -> dict[str, Trace]:
        """``model``, a whole text, or a batch of them."""
        ids = self._ids, INT32
        if len(self._ids) == 1:
            return {"model": self.trace(input_ids=ids, token_type_ids=ids)}
        batch = self.trace(self.of_batch, input_ids=ids, token_type_ids=ids, attention_mask=ids)
        return {"model": batch}


def read(fields: Fields) -> BertConfig:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    if hidden % heads:
        raise fields.error("num_attention_heads", heads, f"a divisor of {hidden}, the hidden size")
    fields.neutral(position_embedding_type="absolute", add_cross_attention=False, is_decoder=False)
    fields.idle(
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
        *("gradient_checkpointing", "tie_word_embeddings"),
    )
    return BertConfig(
        vocab_size=fields.size("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.size("intermediate_size"),
        num_layers=fields.size("num_hidden_layers", most=MOST_LAYERS),
        num_heads=heads,
        type_vocab_size=fields.size("type_vocab_size", 2),
        layer_norm_eps=fields.positive("layer_norm_eps", 1e-12),
        activation=fields.choice("hidden_act", tuple(ACTIVATIONS), "gelu"),
        context_length=fields.size("max_position_embeddings"),
    )


FAMILY = Family("bert", ("BertModel",), read, Bert, generates=False, unused=("pooler.",))
