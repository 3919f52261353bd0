"""RoPE: blocks of rows that share a row of angles."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import (
    Call,
    Design,
    Direction,
    Index,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.tiling import Split, best_split

_TILE = 4096  # elements at the most
_FREQUENCIES = 16  # that the kernel turns at once


def design(request: Request) -> Design:
    """Loops: over rows of angles, then over blocks of the rows that share one. The columns split
    whichever has enough.
    """
    if len(request.shape("x")) > 2:
        raise RefusedError(f"x is {request.shape('x')}; the design turns the rows of one sequence")
    target, (total, width) = request.target, request.shape("x")
    if width % (2 * _FREQUENCIES):
        raise RefusedError(f"head_dim {width} is no multiple of {2 * _FREQUENCIES}")
    angles = Split(request.shape("angles")[0], 1)
    shared = total // angles.total
    by_angle = angles.total >= target.columns
    rows = best_split(shared, max(1, _TILE // width), 1 if by_angle else target.columns)
    angle = angles.start(0, 2, target.columns if by_angle else 0)
    row = rows.start(1, 2, 0 if by_angle else target.columns)
    columns = (
        tuple((steps, rows.blocks) for steps in angles.over(target.columns))
        if by_angle
        else tuple((angles.total, steps) for steps in rows.over(target.columns))
    )
    kernel = "rope_interleaved_bf16" if request.op.attributes()["interleaved"] else "rope_bf16"
    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs("x", "angles"), *request.outputs("y")),
        columns=columns,
        streams=(
            _tile("x", Direction.IN, rows.tile, width, shared, angle, row),
            Stream(
                "angles",
                Direction.IN,
                1,
                "bfloat16",
                width,
                (Transfer("angles", (width,), (1,), (Term(width, angle),)),),
            ),
            _tile("y", Direction.OUT, rows.tile, width, shared, angle, row),
        ),
        calls=(Call(kernel, 2, ("x", "angles", "y", rows.tile, width)),),
        in_place=() if rows.overlaps else (("x", "y"),),
    )


def _tile(
    name: str,
    direction: Direction,
    rows: int,
    width: int,
    shared: int,
    angle: Index,
    row: Index,
) -> Stream:
    terms = (Term(shared * width, angle), Term(width, row))
    transfer = Transfer(name, (rows * width,), (1,), terms)
    return Stream(name, direction, 2, "bfloat16", rows * width, (transfer,))
