"""Copy: flat tiles through the memory tiles."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import Design, Term, Transfer
from onnx_iron.kernels.designs.moved import TILE, moved
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.tiling import Split, best_split


def design(request: Request) -> Design:
    """Flat tiles over the columns."""
    n = request.size("y")
    if n % 2:
        raise RefusedError(f"{n} elements of 2 bytes; a DMA moves 4 at a time")
    words = best_split(n // 2, TILE // 2, request.target.columns)
    split = Split(n, 2 * words.tile)
    place = (Term(1, split.start(0, 1, request.target.columns)),)
    return moved(
        request,
        (*request.inputs("x"), *request.outputs("y")),
        Transfer("x", (split.tile,), (1,), place),
        Transfer("y", (split.tile,), (1,), place),
        tuple((steps,) for steps in split.over(request.target.columns)),
    )
