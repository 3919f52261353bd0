"""GEMV: blocks of the weight's rows, float32 sums kept over tiles of K."""

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

_ROWS = 16  # of the weight, that the kernel takes at once
_DEPTH = 512  # elements of a row, at the most
_STEP = 64  # elements of a row that the kernel takes at once


def design(request: Request) -> Design:
    """Loops: over blocks of the weight's rows, split over the columns, then over tiles of K."""
    n, k = request.shape("weight")
    if k % _STEP:
        raise RefusedError(f"K {k} is no multiple of {_STEP}")
    if n < _ROWS or n % 2:
        raise RefusedError(f"{n} rows; it takes an even number, {_ROWS} at the least")

    def designs() -> Iterator[Design]:
        for depth in range(_DEPTH, 0, -_STEP):
            if k % depth == 0:
                yield _gemv(request, Split(n, _ROWS), Split(k, depth))

    return first_that_fits(designs())


def _gemv(request: Request, rows: Split, steps: Split) -> Design:
    target, k, depth = request.target, steps.total, steps.tile
    row, step = rows.start(0, 2, target.columns), steps.start(1, 2)
    part = Transfer("weight", (_ROWS, depth), (k, 1), (Term(k, row), Term(1, step)))
    result = Transfer("y", (_ROWS,), (1,), (Term(1, row),))
    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs("weight", "x"), *request.outputs("y")),
        columns=tuple((blocks, steps.blocks) for blocks in rows.over(target.columns)),
        streams=(
            Stream("weight", Direction.IN, 2, "bfloat16", part.size, (part,)),
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
            Stream("y", Direction.OUT, 1, "bfloat16", _ROWS, (result,)),
        ),
        locals=(Local("sums", "float32", _ROWS * target.lanes),),
        calls=(
            Call("gemv_start_bf16", 1, ("sums",)),
            Call("gemv_bf16", 2, ("weight", "x", "sums", depth, step)),
            Call("gemv_finish_bf16", 1, ("sums", "y"), after=True),
        ),
    )
