"""Attention over cached keys and values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.attention_body import attention_body, plain_attention
from onnx_iron.operators.base import (
    Case,
    In,
    Kind,
    Limit,
    Op,
    Shape,
    Tolerance,
    narrow_like,
    widen,
)
from onnx_iron.operators.body import Body

_QKV: dict[str, Shape] = {"query": (5, 4, 8), "key": (12, 2, 8), "value": (12, 2, 8)}
_BATCH: dict[str, Shape] = {"query": (2, 3, 4, 8), "key": (2, 7, 2, 8), "value": (2, 7, 2, 16)}


@dataclass(frozen=True)
class Attention(Op):
    """``softmax(query @ key.T * scale) @ value`` for each head, in float32, one rounding.

    Rows first, as a cache is written: query (T, H, D), key (S, G, D), value (S, G, Dv), or each
    with a batch before them. Head h reads key head h // (H / G). Row t sees the first S keys; where
    ``is_causal`` the first position + t + 1 of them, the last ``window`` of these; at most
    ``kv_rows``; and of those the ones where ``mask`` is true. ``scale`` is 1 / sqrt(D) where not
    given. Scores are scaled, then ``softcap * tanh(scores / softcap)``, then ``alibi`` (H,) times
    how far a key is before the row, and ``bias``, are added; ``sinks`` (H,) are scores that have
    no value. ``mask`` and ``bias`` are (T, S), (H, T, S) or (B, H, T, S), any of them 1. A key that
    a row does not see, or whose bias is minus infinity, counts for nothing; a row that sees none
    gives zeros.
    """

    query = In()
    key = In()
    value = In()
    position = In(Kind.SCALAR, optional=True)
    kv_rows = In(Kind.SCALAR, optional=True)
    mask = In(Kind.BOOL, optional=True)
    bias = In(Kind.T_OR_FLOAT32, optional=True)
    alibi = In(Kind.T_OR_FLOAT32, optional=True)
    sinks = In(Kind.T_OR_FLOAT32, optional=True)
    is_causal: bool = False
    scale: float | None = None
    softcap: float | None = None
    window: int | None = None
    built_in = ("is_causal",)
    standard_opset = 23
    tolerance = Tolerance(
        8, 1, "sums in some order; exp of scores that are rounded", of_magnitude=2**-21
    )
    cases = (
        Case(_QKV),
        Case(
            {"query": (5, 6, 16), "key": (12, 2, 16), "value": (12, 2, 16)},
            {"is_causal": True},
            {"position": 3},
        ),
        Case(
            {"query": (1, 9, 64), "key": (40, 3, 64), "value": (40, 3, 64)},
            {"is_causal": True},
            {"position": 39},
        ),
        Case(
            {"query": (3, 2, 8), "key": (7, 2, 8), "value": (7, 2, 24)},
            {"scale": 0.5},
            {"kv_rows": 4},
        ),
        Case({"query": (6, 2, 8), "key": (6, 1, 8), "value": (6, 1, 8)}, {"is_causal": True}),
        Case({**_QKV, "mask": (5, 12)}),
        Case({**_QKV, "mask": (4, 5, 1), "bias": (1, 1, 12)}, {}, {"kv_rows": 9}),
        Case(
            {**_QKV, "bias": (4, 5, 12), "sinks": (4,)},
            {"is_causal": True, "softcap": 2.0},
            {"position": 4},
        ),
        Case(
            {**_QKV, "alibi": (4,)},
            {"is_causal": True, "window": 3},
            {"position": 5, "kv_rows": 11},
        ),
        Case({**_BATCH, "mask": (2, 4, 3, 7), "sinks": (4,)}, {"softcap": 0.5}),
        Case({**_BATCH, "bias": (2, 1, 3, 7)}, {"is_causal": True}, {"position": 2, "kv_rows": 6}),
    )

    def shape(
        self,
        query: Shape,
        key: Shape,
        value: Shape,
        position: Shape | None = None,
        kv_rows: Shape | None = None,
        mask: Shape | None = None,
        bias: Shape | None = None,
        alibi: Shape | None = None,
        sinks: Shape | None = None,
    ) -> Shape:
        if len(query) not in (3, 4):
            raise ValueError(
                f"Attention.query is {query}; it must be (rows, heads, head_dim), or with a batch "
                "before them"
            )
        batch, (rows, heads, width) = query[:-3], query[-3:]
        lead = "".join(f"{dim}, " for dim in batch)
        fits = len(key) == len(query) and key[:-3] == batch and key[-1] == width and key[-3] > 0
        if not fits:
            raise ValueError(
                f"Attention.key is {key}; query is {query}, so it must be "
                f"({lead}entries, kv_heads, {width})"
            )
        if len(value) != len(key) or value[:-1] != key[:-1]:
            raise ValueError(
                f"Attention.value is {value}; key is {key}, so it must be "
                f"({lead}{key[-3]}, {key[-2]}, value_dim)"
            )
        if not key[-2] or heads % key[-2]:
            raise ValueError(
                f"Attention: {heads} query heads are no multiple of {key[-2]} key heads"
            )
        whole = (*batch, heads, rows, key[-3])
        for name, given in (("mask", mask), ("bias", bias)):
            if given is None:
                continue
            wide = whole[-len(given) :] if 2 <= len(given) <= len(whole) else ()
            if not wide or any(d not in (1, w) for d, w in zip(given, wide, strict=True)):
                raise ValueError(
                    f"Attention.{name} is {given}; query is {query} and key {key}, so it must be "
                    f"{whole} or its last two or three, any of them 1"
                )
        for name, given in (("alibi", alibi), ("sinks", sinks)):
            if given not in (None, (heads,)):
                raise ValueError(f"Attention.{name} is {given}; query is {query}: ({heads},) fits")
        self._check_attributes(alibi is not None)
        return (*batch, rows, heads, value[-1])

    def _check_attributes(self, alibi: bool) -> None:
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise ValueError(f"Attention: softcap is {self.softcap}; it must be above 0 and finite")
        if self.window is not None and self.window < 1:
            raise ValueError(f"Attention: window is {self.window}; it must be 1 or more")
        if not self.is_causal and (alibi or self.window is not None):
            raise ValueError("Attention: window and alibi need is_causal")

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        entries = shapes["key"][-3]
        for name, low, high in (("position", 0, entries - 1), ("kv_rows", 1, entries)):
            for value in values.get(name, ()):
                message = f"{name} is {value}, expected {low}..{high} (key has {entries} rows)"
                yield Limit(value, low, high, "key", entries, message)

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        width = shapes["query"][-1]
        return 2 * math.prod(output[:-1]) * shapes["key"][-3] * (width + output[-1])

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        query = operands[0]
        return dict(query.valid) if isinstance(query, Handle) else {}

    def reference(
        self,
        query: Array,
        key: Array,
        value: Array,
        position: int | None = None,
        kv_rows: int | None = None,
        mask: Array | None = None,
        bias: Array | None = None,
        alibi: Array | None = None,
        sinks: Array | None = None,
    ) -> Array:
        T, H, D = query.shape[-3:]  # noqa: N806
        S, G = key.shape[-3:-1]  # noqa: N806
        given = {"position": position, "kv_rows": kv_rows}
        self.check_call({"key": key.shape}, {k: [v] for k, v in given.items() if v is not None})
        scale = np.float32(1 / math.sqrt(D) if self.scale is None else self.scale)
        own = (position or 0) + np.arange(T)
        seen = self._seen(query.shape, S, position, kv_rows, mask, bias)
        bias = None if bias is None else np.broadcast_to(widen(bias), seen.shape)
        y = np.zeros((*query.shape[:-1], value.shape[-1]), np.float32)
        for *b, t, h in np.ndindex(*query.shape[:-1]):
            at = tuple(b)
            places = np.flatnonzero(seen[(*at, h, t)])
            if not places.size:
                continue
            keys, values = (widen(x[at][places, h // (H // G)]) for x in (key, value))
            scores = (keys @ widen(query[(*at, t, h)])) * scale
            if self.softcap is not None:
                cap = np.float32(self.softcap)
                scores = cap * np.tanh(scores / cap)
            if alibi is not None:
                scores = scores + widen(alibi)[h] * (places - own[t]).astype(np.float32)
            if bias is not None:
                scores = scores + bias[(*at, h, t)][places]
            most, total = scores.max(), np.float32(0)
            if sinks is not None:
                most = max(most, widen(sinks)[h])
                total = np.exp(widen(sinks)[h] - most)
            weights = np.exp(scores - most)
            y[(*at, t, h)] = (weights / (total + weights.sum())) @ values
        return narrow_like(y, query)

    def oracle(self, query: Array, key: Array, value: Array, *others: Any) -> Array:
        weights, seen, _ = self._weights(query, key, *others)
        values = np.moveaxis(np.repeat(value, query.shape[-2] // key.shape[-2], -2), -2, -3)
        # A key that a row does not see counts for nothing, also where its value is not finite.
        y = np.empty((*weights.shape[:-1], value.shape[-1]))
        for at in np.ndindex(*weights.shape[:-1]):
            y[at] = weights[at][seen[at]] @ values[at[:-1]][seen[at]]
        return np.moveaxis(y, -3, -2)

    def magnitude(self, query: Array, key: Array, value: Array, *others: Any) -> Array:
        # A score that is off by d makes each weight off by as much as d, of all that is summed.
        _, _, scores = self._weights(query, key, *others)
        largest = np.where(np.isfinite(scores), scores, 0).max(-1)
        largest = np.moveaxis(largest, -1, -2)[..., None]
        terms = self.oracle(query, key, np.abs(value), *others) * (1 + largest)
        # Beside a sink all weights may be so small that exp in float32 gives 0.
        if len(others) > 5 and others[5] is not None:
            terms = terms + 2**-100 * np.max(np.abs(value), where=np.isfinite(value), initial=0)
        return np.asarray(terms)

    def _seen(
        self,
        query: Shape,
        entries: int,
        position: int | None,
        kv_rows: int | None,
        mask: Array | None,
        bias: Array | None,
    ) -> Array:
        """What each row sees, (..., H, T, S)."""
        rows, heads = query[-3:-1]
        place, own = np.arange(entries), np.arange(rows)[:, None] + (position or 0)
        seen = np.broadcast_to(place < (entries if kv_rows is None else kv_rows), (rows, entries))
        if self.is_causal:
            seen = seen & (place <= own)
        if self.window is not None:
            seen = seen & (place > own - self.window)
        if mask is not None:
            seen = seen & mask
        if bias is not None:
            seen = seen & (bias != -np.inf)
        return np.broadcast_to(seen, (*query[:-3], heads, rows, entries))

    def _weights(
        self,
        query: Array,
        key: Array,
        position: int | None = None,
        kv_rows: int | None = None,
        mask: Array | None = None,
        bias: Array | None = None,
        alibi: Array | None = None,
        sinks: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """Weights, what is seen, and the magnitudes of what scores are summed of; all
        (..., H, T, S), in float64.
        """
        from scipy.special import softmax as exact

        (T, H, D), S = query.shape[-3:], key.shape[-3]  # noqa: N806
        keys = np.repeat(key, H // key.shape[-2], axis=-2)
        scale = 1 / math.sqrt(D) if self.scale is None else self.scale
        scores = np.einsum("...thd,...shd->...hts", query, keys) * scale
        terms = np.einsum("...thd,...shd->...hts", np.abs(query), np.abs(keys)) * abs(scale)
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        own = np.arange(T)[:, None] + (position or 0)
        far = None if alibi is None else alibi[:, None, None] * (np.arange(S) - own)
        for added in (far, bias):
            if added is not None:
                scores, terms = scores + added, terms + np.abs(added)
        if sinks is not None:
            column = np.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
            scores = np.concatenate([scores, column], -1)
            terms = np.maximum(terms, np.abs(sinks)[:, None, None])
        seen = self._seen(query.shape, S, position, kv_rows, mask, bias)
        scores[..., :S] = np.where(seen, scores[..., :S], -np.inf)
        weights = exact(scores, axis=-1)[..., :S]
        return np.where(seen, weights, 0), seen, np.where(seen, terms, 0)

    def body(self, g: Body, *names: Any) -> str:
        return attention_body(self, g, *names)

    def standard(self, g: Body, *names: Any) -> str:
        further = any(name is not None for name in names[5:])
        plain = not further and self.softcap is None and self.window is None
        if not plain or (self.scale is not None and self.scale <= 0):
            # ONNX's has not the former, or not the same; onnxruntime's refuses the latter.
            return self.body(g, *names)
        return plain_attention(self, g, *names)

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        query, key, value = shapes[:3]
        assert query is not None
        assert key is not None
        assert value is not None
        words = [f"h{query[-2]}.g{key[-2]}.d{query[-1]}.{value[-1]}"]
        words += ["scaled"] if self.scale is not None else []
        words += ["capped"] if self.softcap is not None else []
        words += [f"window{self.window}"] if self.window is not None else []
        if len(query) == 4:
            words.append("batch")
        for name, shape in zip(("mask", "bias"), shapes[5:7], strict=False):
            if shape is not None:
                heads = len(shape) > 2 and shape[-3] > 1
                words.append(f"{name}{len(shape)}{'h' if heads else ''}")
        return ".".join(words)
