"""The function bodies of attention, in standard ONNX operators."""

from __future__ import annotations

import math
from typing import Any

from onnx import TensorProto

from onnx_iron.operators.body import Body


def attention_body(
    op: Any,
    g: Body,
    query: str,
    key: str,
    value: str,
    position: str | None = None,
    kv_rows: str | None = None,
    mask: str | None = None,
    bias: str | None = None,
    alibi: str | None = None,
    sinks: str | None = None,
) -> str:
    """Of products and a softmax, in the axes (B, G, H / G, T, S): a group's heads meet its keys by
    broadcasting."""
    heads, width = g.shape("query")[-2:]
    groups = g.shape("key")[-2]
    batch = len(g.shape("query")) == 4
    split = (groups, heads // groups)
    axis = g.integer(1 if batch else 0)
    T, S = (g.size(x, axis) for x in (query, key))  # noqa: N806
    four = [
        g.widen(x) if batch else g.op("Unsqueeze", g.widen(x), g.ints(0))
        for x in (query, key, value)
    ]
    q = g.op("Reshape", four[0], g.ints(0, 0, *split, width))
    q = g.op("Transpose", q, perm=[0, 2, 3, 1, 4])
    k = g.op("Unsqueeze", g.op("Transpose", four[1], perm=[0, 2, 3, 1]), g.ints(2))
    v = g.op("Unsqueeze", g.op("Transpose", four[2], perm=[0, 2, 1, 3]), g.ints(2))
    scale = g.real(1 / math.sqrt(width)) if op.scale is None else g.attribute("scale")
    scores = g.op("Mul", g.op("MatMul", q, k), scale)
    if op.softcap is not None:
        cap = g.attribute("softcap")
        scores = g.op("Mul", g.op("Tanh", g.op("Div", scores, cap)), cap)
    if alibi is not None:
        own = _own(g, T, position)
        away = g.op("Sub", g.op("Range", g.integer(0), S, g.integer(1)), own)
        away = g.op("Cast", away, to=TensorProto.FLOAT)
        slopes = g.op("Reshape", g.widen(alibi), g.ints(*split, 1, 1))
        scores = g.op("Add", scores, g.op("Mul", slopes, away))
    seen = seen_by_place(op, g, T, S, position, kv_rows)
    if mask is not None:
        own_mask = _five_axes(g, "mask", mask, split)
        seen = g.op("And", seen, own_mask) if seen else own_mask
    if bias is not None:
        added = _five_axes(g, "bias", g.widen(bias), split)
        scores = g.op("Add", scores, added)
        finite = g.op("Not", g.op("Equal", added, g.real(-math.inf)))
        seen = g.op("And", seen, finite) if seen else finite
    if seen:
        scores = g.op("Where", seen, scores, g.real(-math.inf))
    if sinks is None:
        weights = g.op("Softmax", scores, axis=-1)
    else:
        each = g.op("Concat", g.op("Shape", scores, end=-1), g.ints(1), axis=0)
        column = g.op("Reshape", g.widen(sinks), g.ints(*split, 1, 1))
        column = g.op("Expand", column, each)
        weights = g.op("Softmax", g.op("Concat", scores, column, axis=-1), axis=-1)
        weights = g.span(weights, g.ints(0), g.vector(S), -1)
    if mask is not None or bias is not None or op.window is not None:
        # A row may see no key at all, where a softmax is NaN.
        weights = g.op("Where", seen, weights, g.real(0.0))
    y = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 3, 1, 2, 4])
    merged = g.op("Reshape", y, g.ints(0, 0, heads, g.shape("value")[-1]))
    return g.narrow_like(merged if batch else g.op("Squeeze", merged, g.ints(0)), query)


def plain_attention(
    op: Any,
    g: Body,
    query: str,
    key: str,
    value: str,
    position: str | None = None,
    kv_rows: str | None = None,
    *further: str | None,
) -> str:
    """ONNX's own operator, for what rows see by their place alone."""
    batch = len(g.shape("query")) == 4
    axis = g.integer(1 if batch else 0)
    T, S = (g.size(x, axis) for x in (query, key))  # noqa: N806
    inputs = [
        g.op("Transpose", g.widen(x), perm=[0, 2, 1, 3])
        if batch
        else g.op("Unsqueeze", g.op("Transpose", g.widen(x), perm=[1, 0, 2]), g.ints(0))
        for x in (query, key, value)
    ]
    seen = seen_by_place(op, g, T, S, position, kv_rows)
    if seen:
        inputs.append(g.op("Expand", seen, g.op("Concat", g.vector(T), g.vector(S), axis=0)))
    scale = 1 / math.sqrt(g.shape("query")[-1]) if op.scale is None else op.scale
    y = g.op("Attention", *inputs, scale=scale)
    if batch:
        return g.narrow_like(g.op("Transpose", y, perm=[0, 2, 1, 3]), query)
    return g.narrow_like(g.op("Transpose", g.op("Squeeze", y, g.ints(0)), perm=[1, 0, 2]), query)


def seen_by_place(
    op: Any, g: Body, rows: str, entries: str, position: str | None, kv_rows: str | None
) -> str:
    """The mask (T or 1, S) of the keys that each row sees, empty where it sees all."""
    if not op.is_causal and kv_rows is None:
        return ""
    place = g.op("Range", g.integer(0), entries, g.integer(1))
    limit = entries if kv_rows is None else g.scalar(kv_rows)
    if not op.is_causal:
        return g.op("Less", place, limit)
    own = _own(g, rows, position)
    seen = g.op("Less", place, g.op("Min", g.op("Add", own, g.integer(1)), limit))
    if op.window is None:
        return seen
    return g.op("And", seen, g.op("Greater", place, g.op("Sub", own, g.integer(op.window))))


def _own(g: Body, rows: str, position: str | None) -> str:
    """The entry that each row stands at, (T, 1)."""
    first = g.integer(0) if position is None else g.scalar(position)
    places = g.op("Range", first, g.op("Add", first, rows), g.integer(1))
    return g.op("Unsqueeze", places, g.ints(1))


def _five_axes(g: Body, name: str, given: str, split: tuple[int, int]) -> str:
    """A mask or bias as it broadcasts with (B, G, H / G, T, S)."""
    shape = g.shape(name)
    if len(shape) == 2:
        return given
    heads = split if shape[-3] > 1 else (1, 1)
    lead = [0] if len(shape) == 4 else []
    # A dimension of 0 is taken over; those that come after the split have other places.
    tail = g.op("Shape", given, start=-2)
    return g.op("Reshape", given, g.op("Concat", g.ints(*lead, *heads), tail, axis=0))
