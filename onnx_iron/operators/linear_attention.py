"""LinearAttention: a state for each head that decays and takes in keys with their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import BOOL, FLOAT32, Array
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
from onnx_iron.operators.recurrence import float32_range, rows_first, rows_limit, valid_rows


@dataclass(frozen=True)
class LinearAttention(Op):
    """Linear attention row by row over a float32 state, (K, V) for each head.

    ``S = S * exp(decay)``, then ``S = S + outer(key, beta * (value - key @ S))``, or
    ``S + outer(key, value)`` without beta; ``y = scale * query @ S``. With decay and beta it is the
    gated delta rule (Yang et al., arXiv 2412.06464), with beta alone the delta rule, with decay
    alone gated linear attention.

    query (T, H, K), key (T, G, K), value (T, G, V), state (G, K, V), beta (T, G), decay (T, G) or
    (T, G, K), each with a batch in front or none; query head h reads the state of head h // (H /
    G). ``scale`` is 1 / sqrt(K) where not given. Only the first ``rows`` rows count: the others
    leave the state, and are 0 in y. Any chunking of a sequence gives the same bits.
    """

    query = In()
    key = In()
    value = In()
    state = In(Kind.FLOAT32)
    decay = In(Kind.T_OR_FLOAT32, optional=True)
    beta = In(Kind.T_OR_FLOAT32, optional=True)
    rows = In(Kind.SCALAR, optional=True)
    scale: float | None = None
    built_in = ("scale",)
    outputs = ("y", "new_state")
    results: ClassVar = {"new_state": FLOAT32}
    updates = (("state", "new_state"),)
    standard_opset = 27
    tolerance = Tolerance(
        4,
        1,
        "float32 sums over keys, and each row rounds the state, which the rows after it carry on",
        of_magnitude=2**-21,
    )
    cases = (
        Case(
            {
                **{"query": (6, 4, 16), "key": (6, 2, 16), "value": (6, 2, 40)},
                **{"state": (2, 16, 40), "decay": (6, 2), "beta": (6, 2)},
            },
            {},
            {"rows": 4},
        ),
        Case({"query": (5, 2, 7), "key": (5, 2, 7), "value": (5, 2, 5), "state": (2, 7, 5)}),
        Case(
            {
                **{"query": (1, 2, 8), "key": (1, 2, 8), "value": (1, 2, 9)},
                **{"state": (2, 8, 9), "decay": (1, 2, 8)},
            },
            {"scale": 0.5},
        ),
        Case(
            {
                **{"query": (2, 4, 3, 8), "key": (2, 4, 1, 8), "value": (2, 4, 1, 33)},
                **{"state": (2, 1, 8, 33), "decay": (2, 4, 1, 8), "beta": (2, 4, 1)},
            },
            {},
            {"rows": 3},
        ),
    )

    def shape(
        self,
        query: Shape,
        key: Shape,
        value: Shape,
        state: Shape,
        decay: Shape | None = None,
        beta: Shape | None = None,
        rows: Shape | None = None,
    ) -> tuple[Shape, Shape]:
        if len(query) not in (3, 4) or not query[-1]:
            raise ValueError(
                f"LinearAttention.query is {query}; it must be (T, H, K) or (B, T, H, K), K over 0"
            )
        heads = query[-2]
        if len(key) != len(query) or not key[-2] or heads % key[-2]:
            raise ValueError(
                f"LinearAttention.key is {key}; query is {query}, so it must have a divisor of "
                f"{heads} heads, axis by axis as query"
            )
        per_head = (*query[:-2], key[-2])
        width = value[-1] if value else 0
        expected = {
            "key": (key, [(*per_head, query[-1])]),
            "value": (value, [(*per_head, width)]),
            "state": (state, [(*query[:-3], key[-2], query[-1], width)]),
            "decay": (decay, [per_head, key]),
            "beta": (beta, [per_head]),
        }
        for name, (given, wanted) in expected.items():
            if given is not None and given not in wanted:
                raise ValueError(
                    f"LinearAttention.{name} is {given}; query is {query}, key {key} and value "
                    f"{value}, so it must be {' or '.join(map(str, wanted))}"
                )
        return (*query[:-1], width), state

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        return rows_limit("query", shapes["query"][-3], values)

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        return 6 * math.prod(output) * shapes["query"][-1]

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        return super().output_bounds(output, operands[:1], shape) if output == "y" else {}

    def reference(
        self,
        query: Array,
        key: Array,
        value: Array,
        state: Array,
        decay: Array | None = None,
        beta: Array | None = None,
        rows: int | None = None,
    ) -> tuple[Array, Array]:
        T, heads, width = query.shape[-3:]  # noqa: N806
        count = T if rows is None else rows
        self.check_call({"query": query.shape}, {"rows": [count]})
        queries = widen(query).reshape(*key.shape[:-1], heads // key.shape[-2], width)
        keys, values = widen(key), widen(value)
        if decay is not None:
            factors = np.exp(decay.astype(np.float64)).astype(np.float32)
            factors = factors.reshape(*key.shape[:-1], -1)
        s, y = state, np.zeros((*queries.shape[:-1], value.shape[-1]), np.float32)
        for t in range(count):
            k, v = keys[..., t, :, :], values[..., t, :, :]
            if decay is not None:
                s = s * factors[..., t, :, :, None]
            if beta is not None:
                v = widen(beta)[..., t, :, None] * (v - (k[..., None] * s).sum(-2))
            s = s + k[..., None] * v[..., None, :]
            y[..., t, :, :, :] = queries[..., t, :, :, :] @ s
        y = np.float32(self._scale(width)) * y
        return narrow_like(y.reshape(*query.shape[:-1], value.shape[-1]), query), s.copy()

    def _scale(self, width: int) -> float:
        return 1 / math.sqrt(width) if self.scale is None else self.scale

    def oracle(self, *operands: Any) -> tuple[Array, Array]:
        return self._in_float64(operands, signed=True)

    def magnitude(self, *operands: Any) -> tuple[Array, Array]:
        return self._in_float64(operands, signed=False)

    def _in_float64(self, operands: Sequence[Any], *, signed: bool) -> tuple[Array, Array]:
        """The rows one by one; unsigned the sum of all magnitudes.

        What a row computes is in float32's range, or infinite, as the state that is carried is.
        """
        given: list[Any] = [*operands, *[None] * (7 - len(operands))]
        query, key, value, state, decay, beta, rows = given
        part, kept, minus = (np.asarray, float32_range, -1) if signed else (np.abs, np.asarray, 1)
        query, key, value, state = (part(x) for x in (query, key, value, state))
        group = query.shape[-2] // key.shape[-2]
        y, s = np.zeros((*query.shape[:-1], value.shape[-1])), state
        for t in range(query.shape[-3] if rows is None else rows):
            k, v = key[..., t, :, :], value[..., t, :, :]
            if decay is not None:
                exponent = decay.reshape(*key.shape[:-1], -1)[..., t, :, :, None]
                s = kept(kept(np.exp(exponent)) * s)
            if beta is not None:
                found = kept(kept(k[..., None] * s).sum(-2))
                v = kept(part(beta)[..., t, :, None] * (v + minus * found))
            s = kept(s + kept(np.einsum("...gk,...gv->...gkv", k, v)))
            repeated = np.repeat(s, group, axis=-3)
            y[..., t, :, :] = kept(query[..., t, :, :, None] * repeated).sum(-2)
        return part(self._scale(query.shape[-1])) * kept(y), s

    def body(
        self,
        g: Body,
        query: str,
        key: str,
        value: str,
        state: str,
        decay: str | None = None,
        beta: str | None = None,
        rows: str | None = None,
    ) -> tuple[str, str]:
        rank, (heads, width) = len(g.shape("query")), g.shape("key")[-2:]
        group = g.shape("query")[-2] // heads

        def turned(name: str, given: str, *last: int) -> str:
            """Rows first, in float32, what a row of a batch has in the shape ``last``."""
            flat = rows_first(g, given, len(g.shape(name)), batched=rank == 4)
            return g.op("Reshape", flat, g.ints(*[0] * (rank - 2), *last))

        queries = turned("query", query, heads, group, width)
        valid = valid_rows(g, queries, rows)
        per_row = {
            "query": queries,
            "key": turned("key", key, heads, width, 1),
            "value": turned("value", value, heads, 1, g.shape("value")[-1]),
        }
        if decay is not None:
            last = width if len(g.shape("decay")) == rank else 1
            per_row["decay"] = g.op("Exp", turned("decay", decay, heads, last, 1))
        if beta is not None:
            per_row["beta"] = turned("beta", beta, heads, 1, 1)

        def turn(
            inner: Body, carried: list[str], entries: list[str]
        ) -> tuple[list[str], list[str]]:
            (before,), row = carried, dict(zip(("valid", *per_row), entries, strict=True))
            s, v = before, row["value"]
            if decay is not None:
                s = inner.op("Mul", row["decay"], s)
            if beta is not None:
                asking = inner.op(
                    "Transpose", row["key"], perm=[*range(rank - 2), rank - 1, rank - 2]
                )
                found = inner.op("MatMul", asking, s)
                v = inner.op("Mul", row["beta"], inner.op("Sub", v, found))
            s = inner.op("Add", s, inner.op("Mul", row["key"], v))
            s = inner.op("Where", row["valid"], s, before)
            return [s], [inner.op("MatMul", row["query"], s)]

        entries = {valid: BOOL, **dict.fromkeys(per_row.values(), FLOAT32)}
        (new_state,), (y,) = g.scan([state], entries, turn)
        y = g.op("Mul", y, g.real(self._scale(width)))
        if rows is not None:
            y = g.op("Where", g.op("Reshape", valid, g.ints(-1, *[1] * rank)), y, g.real(0.0))
        y = g.op("Reshape", y, g.ints(*[0] * (rank - 2), -1, g.shape("value")[-1]))
        return g.narrow_like(rows_first(g, y, rank, batched=rank == 4), query), new_state

    def standard(
        self,
        g: Body,
        query: str,
        key: str,
        value: str,
        state: str,
        decay: str | None = None,
        beta: str | None = None,
        rows: str | None = None,
    ) -> tuple[str, str]:
        # The standard operator counts all rows, and takes a scale of 0 for one that isn't given.
        if rows is not None or self.scale == 0:
            return self.body(g, query, key, value, state, decay, beta, rows)
        batched = len(g.shape("query")) == 4
        (heads, width), queries = g.shape("key")[-2:], g.shape("query")[-2]

        def packed(name: str, given: str | None) -> str:
            """A batch's rows, all heads of one side by side."""
            if given is None:
                return ""
            size = math.prod(g.shape(name)[2 if batched else 1 :])
            return g.op("Reshape", g.widen(given), g.ints(*((0, 0) if batched else (1, -1)), size))

        zero = g.ints(0)
        y, new_state = g.ops(
            "LinearAttention",
            packed("query", query),
            packed("key", key),
            packed("value", value),
            state if batched else g.op("Unsqueeze", state, zero),
            packed("decay", decay),
            packed("beta", beta),
            outputs=2,
            q_num_heads=queries,
            kv_num_heads=heads,
            scale=self._scale(width),
            update_rule=RULES[decay is not None, beta is not None],
        )
        last = (queries, g.shape("value")[-1])
        y = g.op("Reshape", y, g.ints(*((0, 0) if batched else (-1,)), *last))
        new_state = new_state if batched else g.op("Squeeze", new_state, zero)
        return g.narrow_like(y, query), new_state

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        query, key, value, decay = (*shapes[:3], shapes[4] if len(shapes) > 4 else None)
        assert query is not None
        assert key is not None
        assert value is not None
        wide = "d" if decay is not None and len(decay) == len(query) else ""
        sizes = (len(query), query[-2], *key[-2:], value[-1])
        return f"{'x'.join(map(str, sizes))}{wide}"


# The standard operator's rule by whether there are decay and beta.
RULES = {
    (False, False): "linear",
    (True, False): "gated",
    (False, True): "delta",
    (True, True): "gated_delta",
}
