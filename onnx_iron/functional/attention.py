"""Attention."""

from __future__ import annotations

from typing import Any

from onnx_iron.dtypes import BOOL
from onnx_iron.functional.operand import handle_of, tensor_of
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.value import Value
from onnx_iron.operators.attention import Attention

_NAME = "scaled_dot_product_attention()"


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
    does not see is left out, whatever it holds; a row that sees nothing gives zeros. It is one
    step, in float32 with one rounding.

    Args:
        query: (rows, heads, head_dim), or several sequences' with a batch before them; its rows may
            be bounded.
        key: (entries, kv_heads, head_dim), with the same batch; where its entries are bounded
            (``keys[:n]``) the rest is not seen.
        value: (entries, kv_heads, value_dim), likewise.
        position: the entry that the first query row stands at; row t sees the entries up to
            position + t. Needs ``is_causal``.
        is_causal: no row sees an entry after its own.
        scale: 1 / sqrt(head_dim) by default.
        enable_gqa: heads may be a multiple of kv_heads, each key head serving so many in a row.
        attn_mask: bool (True where a row sees an entry) or float (added to the scores; minus
            infinity hides an entry), (rows, entries), (heads, rows, entries) or (batch, heads,
            rows, entries), any of them 1.
        softcap: ``softcap * tanh(scores / softcap)``, as Gemma 2's.
        window: a causal row sees this many entries at the most, its own the last.
        alibi: a slope for each head, (heads,): times how far the entry is before the row. Press et
            al., arXiv 2108.12409. Needs ``is_causal``.
        sinks: a score for each head, (heads,), that takes part in the softmax and has no value, as
            gpt-oss'.
        layout: "rows_first", or "heads_first" for torch's order, (heads, rows, head_dim) after a
            batch, of the operands and of the result. It must be given where the two can't be told
            apart, as many rows as heads in query and key; otherwise rows come first.

    Returns:
        (rows, heads, value_dim) after the batch, or as ``layout`` says.

    Raises:
        ValueError: shapes that do not fit, or can't be told from another layout; a position, a
            window or alibi without ``is_causal``; heads that differ without ``enable_gqa``.

    Example:
        >>> heads = x.reshape(4, 2, 4)
        >>> F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).shape
        (4, 2, 4)
    """
    query, key, value = (
        tensor_of(_NAME[:-2], name, x)
        for name, x in (("query", query), ("key", key), ("value", value))
    )
    if layout not in (None, "rows_first", "heads_first"):
        raise ValueError(f"{_NAME}: layout is {layout!r}; expected 'rows_first' or 'heads_first'")
    turned = layout == "heads_first"
    if turned:
        query, key, value = (_turned(handle_of(_NAME[:-2], "x", x)) for x in (query, key, value))
    _check_layout(query, key, layout)
    if not is_causal and (window is not None or alibi is not None):
        raise ValueError(
            f"{_NAME}: window and alibi count from a row's own entry; pass is_causal=True with them"
        )
    if not is_causal and position is not None:
        raise ValueError(
            f"{_NAME}: position says where causal rows stand; pass is_causal=True with it"
        )
    if not enable_gqa and _rows(query) == _rows(key) and query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"{_NAME}: {query.shape[-2]} query heads, {key.shape[-2]} key heads; pass "
            "enable_gqa=True where each key head serves several"
        )
    bounds = [h.valid.get(_rows(h)) if isinstance(h, Handle) else None for h in (key, value)]
    if None not in bounds and bounds[0] != bounds[1]:
        raise ValueError(f"{_NAME}: key is bounded by {bounds[0]}, value by {bounds[1]}")
    entries = bounds[0] if bounds[0] is not None else bounds[1]
    mask = None if attn_mask is None else tensor_of(_NAME[:-2], "attn_mask", attn_mask)
    is_bool = mask is not None and mask.dtype == BOOL
    if isinstance(mask, Handle):
        _check_mask(mask, query, entries)
    y = Attention.step(
        query,
        key,
        value,
        position,
        entries,
        mask if is_bool else None,
        None if is_bool else mask,
        alibi,
        sinks,
        is_causal=is_causal,
        scale=scale,
        softcap=softcap,
        window=window,
    )
    return _turned(y) if turned else y


def _rows(x: Any) -> int:
    """The axis of the rows, or of the entries."""
    return len(x.shape) - 3


def _turned(x: Handle) -> Handle:
    """Rows and heads exchanged."""
    return x.permute(1, 0, 2) if len(x.shape) == 3 else x.permute(0, 2, 1, 3)


def _check_layout(query: Any, key: Any, layout: str | None) -> None:
    if layout is not None or not all(len(x.shape) in (3, 4) for x in (query, key)):
        return
    if all(x.shape[-3] == x.shape[-2] > 1 for x in (query, key)):
        raise ValueError(
            f"{_NAME}: query is {tuple(query.shape)} and key {tuple(key.shape)}, and rows can't be "
            "told from heads; pass layout='rows_first' (rows, heads, head_dim) or "
            "layout='heads_first', torch's order"
        )


def _check_mask(mask: Handle, query: Any, entries: Value | None) -> None:
    """What bounds a mask must bound what it is for: nothing is known of the rest of it."""
    rows = query.valid.get(_rows(query)) if isinstance(query, Handle) else None
    for axis, bound in mask.valid.items():
        fits = {mask.ndim - 2: rows, mask.ndim - 1: entries}.get(axis)
        if fits is None or bound != fits:
            raise ValueError(
                f"{_NAME}: attn_mask is bounded by {bound} along axis {axis}, and not what it is "
                f"for: query's rows are bounded by {rows}, key's by {entries}"
            )
