"""Add, Sub, Mul and Div: any element by itself."""

from __future__ import annotations

from onnx_iron.dtypes import Array
from onnx_iron.kernels.designs.design import Call, Design, Direction, Stream, Term, Transfer
from onnx_iron.kernels.designs.flat import TILE, flat
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.tiling import Split, best_split
from onnx_iron.operators.base import Shape


def design(request: Request) -> Design:
    """Two arrays, an array and a row, or an array and a number that is known now."""
    a, b, y = request.shape("a"), request.shape("b"), request.shape("y")
    stem = request.op.stem
    ordered = stem in ("sub", "div")
    if request.size("a") == request.size("b") == request.size("y"):
        return flat(request, f"{stem}_bf16", ("a", "b"))
    for whole, part, first in (("a", "b", False), ("b", "a", True)):
        if request.size(whole) != request.size("y"):
            continue
        if request.size(part) == 1:
            if part not in request.constants:
                raise RefusedError(
                    f"{part} is one bfloat16, not known now, of 2 bytes; a DMA moves 4 at a time"
                )
            name = f"number_{stem}" if ordered and first else f"{stem}_number"
            number = _number(request.constants[part])
            return flat(request, f"{name}_bf16", (whole,), (number,))
        row = _stripped(request.shape(part))
        if y[len(y) - len(row) :] == row:
            name = f"row_{stem}" if ordered and first else f"{stem}_row"
            return _with_row(request, f"{name}_bf16", whole, part)
    raise RefusedError(f"{a} and {b} are neither equal nor an array and a row or a number")


def _number(constant: Array) -> float:
    return float(constant.reshape(-1)[0])


def _stripped(shape: Shape) -> Shape:
    """The shape without leading ones."""
    return _stripped(shape[1:]) if shape and shape[0] == 1 else shape


def _with_row(request: Request, kernel: str, whole: str, part: str) -> Design:
    """Loops: over parts of the row, then over blocks of rows, split over the columns."""
    target, n = request.target, request.size(part)
    request.whole_vectors("row length", n)
    across = best_split(n // target.lanes, TILE // target.lanes)
    width = across.tile * target.lanes
    parts = Split(n, width)
    rows = best_split(request.size("y") // n, max(1, TILE // width), target.columns)
    column = Term(1, parts.start(0, 2))
    row = Term(n, rows.start(1, 2, target.columns))

    def tile(name: str, direction: Direction) -> Stream:
        transfer = Transfer(name, (rows.tile, width), (n, 1), (row, column))
        return Stream(name, direction, 2, "bfloat16", rows.tile * width, (transfer,))

    once = Transfer(part, (width,), (1,), (column,))
    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs(whole, part), *request.outputs("y")),
        columns=tuple((parts.blocks, steps) for steps in rows.over(target.columns)),
        streams=(
            tile(whole, Direction.IN),
            Stream(part, Direction.IN, 1, "bfloat16", width, (once,), broadcast=True),
            tile("y", Direction.OUT),
        ),
        calls=(Call(kernel, 2, (whole, part, "y", rows.tile, width)),),
        in_place=() if rows.overlaps or parts.overlaps else ((whole, "y"),),
    )
