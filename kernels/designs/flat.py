"""Designs of what treats any element by itself: flat tiles over the columns."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import (
    Argument,
    Call,
    Design,
    Direction,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.tiling import Split, best_split

TILE = 2048  # elements at the most


def flat(
    request: Request, kernel: str, inputs: tuple[str, ...], extra: tuple[Argument, ...] = ()
) -> Design:
    """A kernel over the output's elements and those of ``inputs``.

    Args:
        inputs: operands of the output's size.
        extra: the kernel's arguments after the number of elements.
    """
    target, n = request.target, request.size("y")
    if n < target.lanes:
        raise RefusedError(f"{n} elements are less than a vector of {target.lanes} lanes")
    if n % target.lanes:
        spread = -(-n // target.columns // target.lanes) * target.lanes
        split = Split(n, max(target.lanes, min(TILE, spread, n // target.lanes * target.lanes)))
    else:
        vectors = best_split(n // target.lanes, TILE // target.lanes, target.columns)
        split = Split(n, vectors.tile * target.lanes)
    term = Term(1, split.start(0, 1, target.columns))

    def stream(name: str, direction: Direction) -> Stream:
        transfer = Transfer(name, (split.tile,), (1,), (term,))
        return Stream(name, direction, 1, "bfloat16", split.tile, (transfer,))

    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs(*inputs), *request.outputs("y")),
        columns=tuple((steps,) for steps in split.over(target.columns)),
        streams=(*(stream(name, Direction.IN) for name in inputs), stream("y", Direction.OUT)),
        calls=(Call(kernel, 1, (*inputs, "y", split.tile, *extra)),),
        in_place=() if split.overlaps else tuple((name, "y") for name in inputs),
    )
