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
from onnx_iron.operators.softmax import softmax


@dataclass(frozen=True)
class Attention(Op):
    """``softmax(query @ key.T * scale) @ value`` for each head, in float32, one rounding.

    Rows first, as a cache is written: query (T, H, D), key (S, G, D), value (S, G, Dv). Head h
    reads key head h // (H / G). Row t sees the first S keys; where ``is_causal`` the first
    position + t + 1 of them; at most ``kv_rows``. ``scale`` is 1 / sqrt(D) where not given.
    """

    query = In()
    key = In()
    value = In()
    position = In(Kind.SCALAR, optional=True)
    kv_rows = In(Kind.SCALAR, optional=True)
    is_causal: bool = False
    scale: float | None = None
    built_in = ("is_causal",)
    standard_opset = 23
    tolerance = Tolerance(
        8, 1, "sums in some order; exp of scores that are rounded", of_magnitude=2**-21
    )
    cases = (
        Case({"query": (5, 4, 8), "key": (12, 2, 8), "value": (12, 2, 8)}),
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
    )

    def shape(
        self,
        query: Shape,
        key: Shape,
        value: Shape,
        position: Shape | None = None,
        kv_rows: Shape | None = None,
    ) -> Shape:
        if len(query) != 3:
            raise ValueError(f"Attention.query is {query}; it must be (rows, heads, head_dim)")
        if len(key) != 3 or key[2] != query[2] or not key[0]:
            raise ValueError(
                f"Attention.key is {key}; query is {query}, so it must be "
                f"(entries, kv_heads, {query[2]})"
            )
        if len(value) != 3 or value[:2] != key[:2]:
            raise ValueError(
                f"Attention.value is {value}; key is {key}, so it must be "
                f"({key[0]}, {key[1]}, value_dim)"
            )
        if not key[1] or query[1] % key[1]:
            raise ValueError(
                f"Attention: {query[1]} query heads are no multiple of {key[1]} key heads"
            )
        return (query[0], query[1], value[2])

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        entries = shapes["key"][0]
        for name, low, high in (("position", 0, entries - 1), ("kv_rows", 1, entries)):
            for value in values.get(name, ()):
                message = f"{name} is {value}, expected {low}..{high} (key has {entries} rows)"
                yield Limit(value, low, high, "key", entries, message)

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        rows, heads, width = shapes["query"]
        return 2 * rows * heads * shapes["key"][0] * (width + output[-1])

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
    ) -> Array:
        (T, H, D), (S, G) = query.shape, key.shape[:2]  # noqa: N806
        given = {"position": position, "kv_rows": kv_rows}
        self.check_call({"key": key.shape}, {k: [v] for k, v in given.items() if v is not None})
        scale = np.float32(1 / math.sqrt(D) if self.scale is None else self.scale)
        limit = np.full(T, S if kv_rows is None else kv_rows)
        if self.is_causal:
            limit = np.minimum(limit, (position or 0) + np.arange(T) + 1)
        y = np.empty((T, H, value.shape[2]), np.float32)
        for t in range(T):
            seen_keys, seen_values = widen(key[: limit[t]]), widen(value[: limit[t]])
            for h in range(H):
                g = h // (H // G)
                weights = softmax((seen_keys[:, g] @ widen(query[t, h])) * scale)
                y[t, h] = weights @ seen_values[:, g]
        return narrow_like(y, query)

    def oracle(
        self,
        query: Array,
        key: Array,
        value: Array,
        position: int | None = None,
        kv_rows: int | None = None,
    ) -> Array:
        weights = self._weights(query, key, position, kv_rows)[0]
        values = np.repeat(value, query.shape[1] // key.shape[1], axis=1)
        # A key that a row does not see counts for nothing, also where its value is not finite.
        seen = self._limits(len(query), len(key), position, kv_rows)
        rows = [
            np.einsum("hs,shd->hd", weights[:, t, :last], values[:last])
            for t, last in enumerate(seen)
        ]
        return np.stack(rows)

    def magnitude(
        self,
        query: Array,
        key: Array,
        value: Array,
        position: int | None = None,
        kv_rows: int | None = None,
    ) -> Array:
        # A score that is off by d makes each weight off by as much as d, of all that is summed.
        terms = self._weights(np.abs(query), np.abs(key), position, kv_rows)[1]
        largest = np.where(np.isfinite(terms), np.abs(terms), 0).max(-1).T[:, :, None]
        return np.asarray(self.oracle(query, key, np.abs(value), position, kv_rows) * (1 + largest))

    def _limits(self, T: int, S: int, position: int | None, kv_rows: int | None) -> Array:  # noqa: N803
        """How many keys each row sees."""
        last = np.arange(1, T + 1) + (position or 0) if self.is_causal else np.full(T, S)
        return np.asarray(np.minimum(last, S if kv_rows is None else kv_rows))

    def _weights(
        self, query: Array, key: Array, position: int | None, kv_rows: int | None
    ) -> tuple[Array, Array]:
        """Softmax weights and scores (H, T, S), float64; scores that are not seen are -inf."""
        from scipy.special import softmax as exact

        (T, H, D), S = query.shape, len(key)  # noqa: N806
        keys = np.repeat(key, H // key.shape[1], axis=1)
        scale = 1 / math.sqrt(D) if self.scale is None else self.scale
        scores = np.einsum("thd,shd->hts", query, keys) * scale
        seen = np.arange(S) < self._limits(T, S, position, kv_rows)[:, None]
        scores = np.where(seen, scores, -np.inf)
        return np.asarray(exact(scores, axis=-1)), scores

    def body(
        self,
        g: Body,
        query: str,
        key: str,
        value: str,
        position: str | None = None,
        kv_rows: str | None = None,
    ) -> str:
        _, heads, width = g.shape("query")
        groups = g.shape("key")[1]
        T, S = (g.size(x, g.integer(0)) for x in (query, key))  # noqa: N806
        # (T, H, D) to (G, H / G, T, D), so that a group's heads meet its keys by broadcasting.
        grouped = g.op("Reshape", g.widen(query), g.ints(0, groups, heads // groups, width))
        q = g.op("Transpose", grouped, perm=[1, 2, 0, 3])
        k = g.op("Unsqueeze", g.op("Transpose", g.widen(key), perm=[1, 2, 0]), g.ints(1))
        v = g.op("Unsqueeze", g.op("Transpose", g.widen(value), perm=[1, 0, 2]), g.ints(1))
        scale = g.real(1 / math.sqrt(width)) if self.scale is None else g.attribute("scale")
        scores = g.op("Mul", g.op("MatMul", q, k), scale)
        seen = self._seen(g, T, S, position, kv_rows)
        if seen:
            scores = g.op("Where", seen, scores, g.real(-math.inf))
        y = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
        rows_first = g.op("Transpose", y, perm=[2, 0, 1, 3])
        merged = g.op("Reshape", rows_first, g.ints(0, heads, g.shape("value")[2]))
        return g.narrow_like(merged, query)

    def _seen(
        self, g: Body, rows: str, entries: str, position: str | None, kv_rows: str | None
    ) -> str:
        """The mask (T or 1, S) of the keys that each row sees, empty where it sees all."""
        if not self.is_causal and kv_rows is None:
            return ""
        limit = entries if kv_rows is None else g.scalar(kv_rows)
        if self.is_causal:
            one = g.integer(1)
            first = one if position is None else g.op("Add", g.scalar(position), one)
            last = g.op("Range", first, g.op("Add", first, rows), one)
            limit = g.op("Unsqueeze", g.op("Min", last, limit), g.ints(1))
        return g.op("Less", g.op("Range", g.integer(0), entries, g.integer(1)), limit)

    def standard(
        self,
        g: Body,
        query: str,
        key: str,
        value: str,
        position: str | None = None,
        kv_rows: str | None = None,
    ) -> str:
        if self.scale is not None and self.scale <= 0:  # onnxruntime's Attention refuses it
            return self.body(g, query, key, value, position, kv_rows)
        q, k, v = (
            g.op("Unsqueeze", g.op("Transpose", g.widen(x), perm=[1, 0, 2]), g.ints(0))
            for x in (query, key, value)
        )
        T, S = (g.size(x, g.integer(0)) for x in (query, key))  # noqa: N806
        inputs = [q, k, v]
        seen = self._seen(g, T, S, position, kv_rows)
        if seen:
            inputs.append(g.op("Expand", seen, g.op("Concat", g.vector(T), g.vector(S), axis=0)))
        scale = 1 / math.sqrt(g.shape("query")[2]) if self.scale is None else self.scale
        y = g.op("Attention", *inputs, scale=scale)
        heads_first = g.op("Squeeze", y, g.ints(0))
        return g.narrow_like(g.op("Transpose", heads_first, perm=[1, 0, 2]), query)

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        query, key, value = shapes[:3]
        assert query is not None
        assert key is not None
        assert value is not None
        scaled = "" if self.scale is None else ".scaled"
        return f"h{query[1]}.g{key[1]}.d{query[2]}.{value[2]}{scaled}"
