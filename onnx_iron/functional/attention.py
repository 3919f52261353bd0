"""Attention."""

from __future__ import annotations

from typing import Any

from onnx_iron.functional.operand import tensor_of
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
) -> Handle:
    """Attention as torch's, rows first as a cache stores them, over a cache of static length.

    Args:
        query: (rows, heads, head_dim); its rows may be bounded.
        key: (entries, kv_heads, head_dim); where bounded (``keys[:n]``) the rest is not seen.
        value: (entries, kv_heads, value_dim).
        position: the entry that the first query row stands at; row t sees the entries up to
            position + t. Needs ``is_causal``.
        is_causal: no row sees an entry after its own.
        scale: 1 / sqrt(head_dim) by default.
        enable_gqa: heads may be a multiple of kv_heads, each key head serving so many in a row.

    Returns:
        (rows, heads, value_dim).

    Raises:
        ValueError: shapes that do not fit, a position without ``is_causal``, or heads that
            differ without ``enable_gqa``.

    Example:
        >>> heads = x.reshape(4, 2, 4)
        >>> F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).shape
        (4, 2, 4)
    """
    query, key, value = (
        tensor_of("scaled_dot_product_attention", name, x)
        for name, x in (("query", query), ("key", key), ("value", value))
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
    return Attention.step(
        query,
        key,
        value,
        position,
        bounds[0] if bounds[0] is not None else bounds[1],
        is_causal=is_causal,
        scale=scale,
    )
