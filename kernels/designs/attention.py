"""Attention of a few rows over a cache: key heads over the columns, tiles of the cache in order."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx_iron.kernels.designs.design import (
    Call,
    Design,
    Direction,
    Index,
    Local,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request, first_that_fits
from onnx_iron.kernels.designs.tiling import Split

_CAUSAL, _POSITION, _KV_ROWS = 1, 2, 4  # the kernel's flags
_QUERY_ROWS = 8  # at the most, at once
_ENTRIES = 64  # of the cache, at the most


def design(request: Request) -> Design:
    """Loops: over key heads, split over the columns, over blocks of query rows, over the cache.

    A tile of the cache has the keys of its entries, then their values. The whole cache moves, seen
    or not; the kernel passes over what no row sees.
    """
    _refuse_what_the_kernel_has_not(request)
    request.whole_vectors("head_dim", request.shape("query")[2])
    request.whole_vectors("value_dim", request.shape("value")[2])
    length, entries = request.shape("query")[0], request.shape("key")[0]

    def designs() -> Iterator[Design]:
        most_rows = min(_QUERY_ROWS, length)
        while most_rows:
            most_entries = min(_ENTRIES, entries)
            while most_entries:
                yield _design(request, Split(length, most_rows), Split(entries, most_entries))
                most_entries //= 2
            most_rows //= 2

    return first_that_fits(designs())


def _refuse_what_the_kernel_has_not(request: Request) -> None:
    given = [name for name in ("mask", "bias", "alibi", "sinks") if request.has(name)]
    given += [name for name in ("softcap", "window") if name in request.op.attributes()]
    if len(request.shape("query")) != 3:
        given.append("a batch")
    if given:
        raise RefusedError(f"it has {' and '.join(given)}, which the kernel has not")


def _design(request: Request, queries: Split, cache: Split) -> Design:
    target = request.target
    _, all_heads, dim = request.shape("query")
    entries, groups, value_dim = request.shape("value")
    heads, attributes = all_heads // groups, request.op.attributes()
    rows = queries.tile * heads
    over = Split(groups, 1)
    group, first_row = over.start(0, 3, target.columns), queries.start(1, 3)
    first = cache.start(2, 3)

    flags = _CAUSAL if attributes["is_causal"] else 0
    asked = [_heads("query", queries.tile, all_heads, heads, dim, first_row, group)]
    words = 0
    for name, flag in (("position", _POSITION), ("kv_rows", _KV_ROWS)):
        if request.has(name):
            asked.append(Transfer(name, (1,), (1,)))
            flags, words = flags | flag, words + 1
    kept = tuple(
        Transfer(
            name,
            (cache.tile, width),
            (groups * width, 1),
            (Term(groups * width, first), Term(width, group)),
        )
        for name, width in (("key", dim), ("value", value_dim))
    )
    result = _heads("y", queries.tile, all_heads, heads, value_dim, first_row, group)
    return Design(
        name=request.op.stem,
        target=target,
        buffers=(
            *request.inputs("query", "key", "value", "position", "kv_rows"),
            *request.outputs("y"),
        ),
        columns=tuple((each, queries.blocks, cache.blocks) for each in over.over(target.columns)),
        streams=(
            Stream(
                "query", Direction.IN, 2, "bfloat16", rows * dim + 2 * words, tuple(asked), depth=1
            ),
            Stream("cache", Direction.IN, 3, "bfloat16", cache.tile * (dim + value_dim), kept),
            Stream("y", Direction.OUT, 2, "bfloat16", rows * value_dim, (result,), depth=1),
        ),
        locals=(Local("state", "float32", rows * (value_dim + 2)),),
        calls=(
            Call("attention_start_bf16", 2, ("state", rows, value_dim)),
            Call(
                "attention_bf16",
                3,
                (
                    "query",
                    "cache",
                    "state",
                    rows,
                    heads,
                    dim,
                    value_dim,
                    cache.tile,
                    first,
                    cache.due(2, 3),
                    entries,
                    first_row,
                    flags,
                    float(attributes.get("scale", 1 / math.sqrt(dim))),
                ),
            ),
            Call("attention_finish_bf16", 2, ("state", "y", rows, value_dim), after=True),
        ),
    )


def _heads(
    buffer: str, rows: int, all_heads: int, heads: int, width: int, row: Index, group: Index
) -> Transfer:
    """A block of rows of the heads that read one key head."""
    return Transfer(
        buffer,
        (rows, heads * width),
        (all_heads * width, 1),
        (Term(all_heads * width, row), Term(heads * width, group)),
    )
