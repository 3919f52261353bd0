"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnx_iron.dtypes import BOOL, Spec
from onnx_iron.functional.activations import softcap as softcap_of
from onnx_iron.functional.elementwise import exp, maximum, tensor, to, where
from onnx_iron.functional.linear import linear
from onnx_iron.functional.operand import handle_of, tensor_of
from onnx_iron.functional.reductions import amax
from onnx_iron.functional.reductions import sum as sum_of
from onnx_iron.functional.shaping import stack
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.value import Value
from onnx_iron.operators.attention import Attention


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    position: Value | int | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    attn_mask: Any = None,
    softcap: float | None = None,
    window: int | None = None,
    alibi: Any = None,
    sinks: Any = None,
    layout: str | None = None,
) -> Handle:
    """Attention as torch's, rows first as a cache stores them, over a cache of static length.

    Scores are scaled, then capped, then ``alibi`` and an additive mask are added, then what a row
    does not see is left out; a row that sees nothing gives zeros.

    Args:
        query: (rows, heads, head_dim); its rows may be bounded.
        key: (entries, kv_heads, head_dim); where bounded (``keys[:n]``) the rest is not seen.
        value: (entries, kv_heads, value_dim).
        position: the entry that the first query row stands at; row t sees the entries up to
            position + t. Needs ``is_causal``.
        is_causal: no row sees an entry after its own.
        scale: 1 / sqrt(head_dim) by default.
        enable_gqa: heads may be a multiple of kv_heads, each key head serving so many in a row.
        attn_mask: bool (True where a row sees an entry) or float (added to the scores), (rows,
            entries) or (heads, rows, entries), any of them 1.
        softcap: ``softcap * tanh(scores / softcap)``, as Gemma 2's.
        window: a causal row sees this many entries at the most, its own the last.
        alibi: a slope for each head, (heads,): times how far the entry is before the row. Press et
            al., arXiv 2108.12409. Needs ``is_causal``.
        sinks: a score for each head, (heads,), that takes part in the softmax and has no value, as
            gpt-oss'.
        layout: "rows_first", or "heads_first" for torch's order, (heads, rows, head_dim), of the
            operands and of the result. It must be given where the two can't be told apart, as many
            rows as heads in query and key; otherwise rows come first.

    Returns:
        (rows, heads, value_dim), or as ``layout`` says.

    Raises:
        ValueError: shapes that do not fit, or can't be told from another layout; a position, a
            window or alibi without ``is_causal``; heads that differ without ``enable_gqa``.

    Example:
        >>> heads = x.reshape(4, 2, 4)
        >>> F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).shape
        (4, 2, 4)
    """
    query, key, value = (
        tensor_of("scaled_dot_product_attention", name, x)
        for name, x in (("query", query), ("key", key), ("value", value))
    )
    if layout not in (None, "rows_first", "heads_first"):
        raise ValueError(
            f"scaled_dot_product_attention(): layout is {layout!r}; expected 'rows_first' or "
            "'heads_first'"
        )
    options: dict[str, Any] = {"position": position, "is_causal": is_causal, "scale": scale}
    options |= {"enable_gqa": enable_gqa, "attn_mask": attn_mask, "softcap": softcap}
    options |= {"window": window, "alibi": alibi, "sinks": sinks}
    if layout == "heads_first":
        turned = (handle_of("scaled_dot_product_attention", "x", x) for x in (query, key, value))
        y = scaled_dot_product_attention(
            *(x.permute(1, 0, 2) for x in turned), layout="rows_first", **options
        )
        return y.permute(1, 0, 2)
    alike = [len(x.shape) == 3 and x.shape[0] == x.shape[1] > 1 for x in (query, key)]
    if layout is None and all(alike):
        raise ValueError(
            f"scaled_dot_product_attention(): query is {tuple(query.shape)} and key "
            f"{tuple(key.shape)}, and rows can't be told from heads; pass layout='rows_first' "
            "(rows, heads, head_dim) or layout='heads_first', torch's order"
        )
    if (window is not None or alibi is not None) and not is_causal:
        raise ValueError(
            "scaled_dot_product_attention(): window and alibi count from a row's own entry; pass "
            "is_causal=True with them"
        )
    if position is not None and not is_causal:
        raise ValueError(
            "scaled_dot_product_attention(): position says where causal rows stand; pass "
            "is_causal=True with it"
        )
    if (
        not enable_gqa
        and len(query.shape) == len(key.shape) == 3
        and query.shape[1] != key.shape[1]
    ):
        raise ValueError(
            f"scaled_dot_product_attention(): {query.shape[1]} query heads, {key.shape[1]} key "
            "heads; pass enable_gqa=True where each key head serves several"
        )
    bounds = [h.valid.get(0) if isinstance(h, Handle) else None for h in (key, value)]
    if None not in bounds and bounds[0] != bounds[1]:
        raise ValueError(
            f"scaled_dot_product_attention(): key is bounded by {bounds[0]}, value by {bounds[1]}"
        )
    entries = bounds[0] if bounds[0] is not None else bounds[1]
    if all(options[name] is None for name in ("attn_mask", "softcap", "window", "alibi", "sinks")):
        return Attention.step(
            query, key, value, position, entries, is_causal=is_causal, scale=scale
        )
    return _composed(query, key, value, entries, **options)


def _composed(
    query: Any,
    key: Any,
    value: Any,
    entries: Value | None,
    *,
    position: Value | int | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    attn_mask: Any,
    softcap: float | None,
    window: int | None,
    alibi: Any,
    sinks: Any,
) -> Handle:
    """Attention head by head, of products and a softmax."""
    Attention().infer([Spec(x.shape, x.dtype) for x in (query, key, value)])
    (rows, heads, width), (count, groups) = query.shape, key.shape[:2]
    query, key, value = (
        _unbounded(handle_of("scaled_dot_product_attention", "x", x)) if x is not query else x
        for x in (query, key, value)
    )
    query = handle_of("scaled_dot_product_attention", "query", query)
    by = width**-0.5 if scale is None else scale
    place = np.arange(count, dtype=np.int32)[None]
    own: Any = np.arange(rows, dtype=np.int32)[:, None]
    if isinstance(position, Value):
        own = tensor(position) + own
    elif position is not None:
        own = own + np.int32(position)
    seen = [tensor(entries) > place] if entries is not None else []
    if is_causal:
        seen.append(current_trace("attention").lift(place) <= own)
    if window is not None:
        seen.append(current_trace("attention").lift(place) > own - np.int32(window))
    mask = None if attn_mask is None else tensor_of("attention", "attn_mask", attn_mask)
    mask = None if mask is None else handle_of("attention", "attn_mask", mask)
    results = []
    for head in range(heads):
        group = head // (heads // groups)
        scores = linear(query[:, head].reshape(rows, width), key[:, group])
        scores = scores.reshape(rows, count) * by
        if softcap is not None:
            scores = softcap_of(scores, softcap)
        if alibi is not None:
            away = to(current_trace("attention").lift(place) - own, scores.dtype)
            slope = handle_of("attention", "alibi", alibi)[head]
            scores = scores + away * slope
        visible = list(seen)
        if mask is not None:
            part = mask if mask.ndim == 2 else mask[head if mask.shape[0] > 1 else 0]
            if part.dtype == BOOL:
                visible.append(part)
            else:
                scores = scores + part
        for each in visible:
            scores = where(each, scores, -math.inf)
        results.append(_weighted(scores, value[:, group], sinks, head))
    return stack(results, 1)


def _weighted(scores: Handle, values: Handle, sinks: Any, head: int) -> Handle:
    """The values' sums by the softmax of scores, zeros where no score is."""
    largest = amax(scores, -1, keepdim=True)
    sink = None
    if sinks is not None:
        sink = handle_of("attention", "sinks", sinks)[head]
        largest = maximum(largest, sink)
    largest = maximum(largest, -3e38)  # of a row that sees nothing
    weights = exp(scores - largest)
    total = sum_of(weights, -1, keepdim=True)
    if sink is not None:
        total = total + exp(sink - largest)
    weights = where(total > 0, weights / total, 0.0)
    product: Handle = weights @ values
    return product


def _unbounded(x: Handle) -> Handle:
    """The same without its bounds: a mask says what counts."""
    return x.parent if x.valid and x.parent is not None and x.parent.shape == x.shape else x
