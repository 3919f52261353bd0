"""Attention over a cache: key heads or blocks of rows over the columns, the cache in tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx_iron.kernels.designs.design import (
    Affine,
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
from onnx_iron.kernels.designs.target import CORES
from onnx_iron.kernels.designs.tiling import Split

_CAUSAL, _POSITION, _KV_ROWS = 1, 2, 4  # the kernel's flags
_QUERY_ROWS = 8  # at the most, at once
_ENTRIES = 64  # of the cache, at the most


def design(request: Request) -> Design:
    """A tile of the cache has the keys of its entries, then their values. The whole cache moves,
    seen or not; the kernel passes over what no row sees.
    """
    _refuse_what_the_kernel_has_not(request)
    request.whole_vectors("head_dim", request.shape("query")[2])
    request.whole_vectors("value_dim", request.shape("value")[2])
    length, entries = request.shape("query")[0], request.shape("key")[0]
    columns = request.target.columns

    def designs() -> Iterator[Design]:
        spread = length >= columns
        most_rows = min(_QUERY_ROWS, -(-length // columns) if spread else length)
        while most_rows:
            most_entries = min(_ENTRIES, entries)
            while most_entries:
                queries, cache = Split(length, most_rows), Split(entries, most_entries)
                yield (_by_rows if spread else _by_heads)(request, queries, cache)
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


def _by_heads(request: Request, queries: Split, cache: Split) -> Design:
    """Loops: over key heads, split over the columns, over blocks of query rows, over the cache."""
    columns = request.target.columns
    over = Split(request.shape("value")[1], 1)
    return _design(
        request,
        queries,
        cache,
        columns=tuple((n, queries.blocks, cache.blocks) for n in over.over(columns)),
        cores=1,
        group=over.start(0, 3, columns),
        first_row=queries.start(1, 3),
        shared=False,
    )


def _by_rows(request: Request, queries: Split, cache: Split) -> Design:
    """Loops: over key heads, as many at once as a column has cores, over blocks of query rows,
    split over the columns, over the cache. A tile of a head's cache is read once for all columns.
    """
    target, groups = request.target, request.shape("value")[1]
    over = Split(groups, -(-groups // -(-groups // CORES)))
    # Each column runs as often as the others, for they share the cache: where there are not blocks
    # enough, the last one is made again.
    each, used = queries.each(target.columns), len(queries.over(target.columns))
    first_row = queries.start(1, 3, target.columns)
    if each * used > queries.blocks:
        first_row = Index(first_row.of, high=Affine(queries.total - queries.tile))
    return _design(
        request,
        queries,
        cache,
        columns=((over.blocks, each, cache.blocks),) * used,
        cores=over.tile,
        group=over.start(0, 3),
        first_row=first_row,
        shared=True,
    )


def _design(
    request: Request,
    queries: Split,
    cache: Split,
    *,
    columns: tuple[tuple[int, int, int], ...],
    cores: int,
    group: Index,
    first_row: Index,
    shared: bool,
) -> Design:
    """The design of a way to split.

    Args:
        cores: of a column, of which each has a key head: the first one the group's.
        shared: all columns read the same cache.
    """
    _, all_heads, dim = request.shape("query")
    entries, groups, value_dim = request.shape("value")
    heads, attributes = all_heads // groups, request.op.attributes()
    rows = queries.tile * heads
    first = cache.start(2, 3)

    flags = _CAUSAL if attributes["is_causal"] else 0
    told, words = [], 0
    for name, flag in (("position", _POSITION), ("kv_rows", _KV_ROWS)):
        if request.has(name):
            told.append(Transfer(name, (1,), (1,)))
            flags, words = flags | flag, words + 1
    asked: list[Transfer] = []
    result: list[Transfer] = []
    for core in range(cores):
        at = queries.tile, all_heads, heads
        asked += [_heads("query", *at, dim, first_row, group, core), *told]
        result.append(_heads("y", *at, value_dim, first_row, group, core))
    kept = tuple(
        Transfer(
            name,
            (cache.tile, width),
            (groups * width, 1),
            (
                Term(groups * width, first),
                Term(width, group),
                *([Term(width, Index(Affine(row=1)))] if shared else []),
            ),
        )
        for name, width in (("key", dim), ("value", value_dim))
    )
    return Design(
        name=request.op.stem,
        target=request.target,
        buffers=(
            *request.inputs("query", "key", "value", "position", "kv_rows"),
            *request.outputs("y"),
        ),
        columns=columns,
        streams=(
            Stream(
                "query", Direction.IN, 2, "bfloat16", rows * dim + 2 * words, tuple(asked), depth=1
            ),
            Stream(
                "cache",
                Direction.IN,
                3,
                "bfloat16",
                cache.tile * (dim + value_dim),
                kept,
                broadcast=shared,
            ),
            Stream("y", Direction.OUT, 2, "bfloat16", rows * value_dim, tuple(result), depth=1),
        ),
        locals=(Local("state", "float32", rows * (value_dim + 2)),),
        rows=cores,
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
    buffer: str,
    rows: int,
    all_heads: int,
    heads: int,
    width: int,
    row: Index,
    group: Index,
    further: int,
) -> Transfer:
    """A block of rows of the heads that read one key head: of the group's, or one further on."""
    return Transfer(
        buffer,
        (rows, heads * width),
        (all_heads * width, 1),
        (
            Term(all_heads * width, row),
            Term(heads * width, group),
            Term(heads * width, Index(Affine(constant=further))),
        ),
    )
