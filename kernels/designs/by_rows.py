"""Designs of what treats any row by itself: blocks of rows over the columns."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_iron.kernels.designs.design import (
    Argument,
    Call,
    Design,
    Direction,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import Request, first_that_fits
from onnx_iron.kernels.designs.tiling import best_split

_TILE = 4096  # elements at the most, where a row has no more


def norm(request: Request) -> Design:
    """Blocks of rows; the weight stays, where there is one."""
    weighted = request.has("weight")
    kernel = f"{request.op.stem}{'_weighted' if weighted else ''}_bf16"
    epsilon = float(request.op.attributes()["epsilon"])
    return by_rows(request, kernel, ("weight",) if weighted else (), (epsilon,))


def by_rows(
    request: Request, kernel: str, kept: tuple[str, ...] = (), extra: tuple[Argument, ...] = ()
) -> Design:
    """A kernel over blocks of x's rows.

    Args:
        kept: operands of a row's length that every block meets.
        extra: the kernel's arguments after the numbers of rows and of a row's elements.
    """
    n = request.shape("x")[-1]
    request.whole_vectors("row length", n)

    def designs() -> Iterator[Design]:
        for depth in (2, 1):
            yield _design(request, kernel, kept, extra, depth)

    return first_that_fits(designs())


def _design(
    request: Request,
    kernel: str,
    kept: tuple[str, ...],
    extra: tuple[Argument, ...],
    depth: int,
) -> Design:
    target, n = request.target, request.shape("x")[-1]
    rows = best_split(request.size("x") // n, max(1, _TILE // n), target.columns)
    term = Term(n, rows.start(0, 1, target.columns))

    def tile(name: str, direction: Direction) -> Stream:
        transfer = Transfer(name, (rows.tile * n,), (1,), (term,))
        return Stream(name, direction, 1, "bfloat16", rows.tile * n, (transfer,), depth)

    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs("x", *kept), *request.outputs("y")),
        columns=tuple((steps,) for steps in rows.over(target.columns)),
        streams=(
            tile("x", Direction.IN),
            *(
                Stream(
                    name,
                    Direction.IN,
                    0,
                    "bfloat16",
                    n,
                    (Transfer(name, (n,), (1,)),),
                    depth=1,
                    broadcast=True,
                )
                for name in kept
            ),
            tile("y", Direction.OUT),
        ),
        calls=(Call(kernel, 1, ("x", *kept, "y", rows.tile, n, *extra)),),
        in_place=() if rows.overlaps else (("x", "y"),),
    )
