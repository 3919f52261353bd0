"""Embedding: the rows of per-call ids, through a memory tile."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import (
    Affine,
    Design,
    Direction,
    Index,
    Scalar,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request


def design(request: Request) -> Design:
    """The rows of the ids, which are the per-call values ``ids[0]``, ``ids[1]`` and so on."""
    entries, width = request.shape("weight")
    if width % 2:
        raise RefusedError(f"rows of {width} elements of 2 bytes; a DMA moves 4 at a time")
    values = tuple(Scalar(f"ids[{i}]", 0, entries - 1) for i in range(request.size("ids")))
    rows = tuple(
        Transfer("weight", (width,), (1,), (Term(width, Index(Affine(values=((v.name, 1),)))),))
        for v in values
    )
    size = len(rows) * width
    return Design(
        name=request.op.stem,
        target=request.target,
        buffers=(*request.inputs("weight"), *request.outputs("y")),
        columns=((),),
        streams=(
            Stream("taken", Direction.IN, 0, "bfloat16", size, rows, depth=1),
            Stream(
                "given",
                Direction.OUT,
                0,
                "bfloat16",
                size,
                (Transfer("y", (size,), (1,)),),
                depth=1,
                source="taken",
            ),
        ),
        values=values,
    )
