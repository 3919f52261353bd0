"""GEMV: the weight streams through in whole rows, so that a column's share of it is one walk."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_iron.kernels.designs.design import (
    Call,
    Design,
    Direction,
    Local,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request, first_that_fits
from onnx_iron.kernels.designs.tiling import Split

_ROWS = 64  # of the result, that a tile of it has at the most
_TILE = 8192  # elements of the weight's tile at the most


def design(request: Request) -> Design:
    """Loops: over blocks of rows, split over the columns, over tiles of a block's rows, over parts
    of a row. A tile is some whole rows, or where a row is long, a part of one.
    """
    n, k = request.shape("weight")
    request.whole_vectors("K", k)
    if n % 2:
        raise RefusedError(f"{n} rows; a DMA writes an even number of them")
    rows = _rows(n, request.target.columns)

    def designs() -> Iterator[Design]:
        for depth in _divisors(k):
            if depth % request.target.lanes == 0:
                for height in _divisors(rows.tile) if depth == k else (1,):
                    if height * depth <= _TILE:
                        yield _gemv(request, rows, Split(rows.tile, height), Split(k, depth))

    return first_that_fits(designs())


def _rows(n: int, columns: int) -> Split:
    """Blocks with the least work for the busiest column, and of those the largest."""
    sizes = range(min(_ROWS, n) // 2 * 2, 0, -2)
    return Split(n, min(sizes, key=lambda size: Split(n, size).each(columns) * size))


def _divisors(of: int) -> list[int]:
    """From the largest."""
    return [n for n in range(of, 0, -1) if of % n == 0]


def _gemv(request: Request, blocks: Split, tiles: Split, parts: Split) -> Design:
    target, k = request.target, parts.total
    block = blocks.start(0, 3, target.columns)
    row, first = tiles.start(1, 3), parts.start(2, 3)
    part = Transfer(
        "weight", (tiles.tile, parts.tile), (k, 1), (Term(k, block), Term(k, row), Term(1, first))
    )
    result = Transfer("y", (blocks.tile,), (1,), (Term(1, block),))
    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs("weight", "x"), *request.outputs("y")),
        columns=tuple((n, tiles.blocks, parts.blocks) for n in blocks.over(target.columns)),
        streams=(
            Stream("weight", Direction.IN, 3, "bfloat16", part.size, (part,)),
            Stream(
                "x",
                Direction.IN,
                0,
                "bfloat16",
                k,
                (Transfer("x", (k,), (1,)),),
                depth=1,
                broadcast=True,
            ),
            Stream("y", Direction.OUT, 1, "bfloat16", blocks.tile, (result,)),
        ),
        locals=(Local("sums", "float32", blocks.tile * target.lanes),),
        calls=(
            Call("gemv_start_bf16", 1, ("sums", blocks.tile)),
            Call("gemv_bf16", 3, ("weight", "x", "sums", tiles.tile, parts.tile, row, first)),
            Call("gemv_finish_bf16", 1, ("sums", "y", blocks.tile), after=True),
        ),
    )
