"""GEMM and ProjectionGEMM: tiles of the products, float32 sums kept over tiles of K."""

from __future__ import annotations

from dataclasses import dataclass

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
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.target import CORES, Target
from onnx_iron.kernels.designs.tiling import Split
from onnx_iron.operators.gemm import Epilogue, ProjectionGEMM

_BLOCK_M, _BLOCK_N, _BLOCK_K = 4, 8, 8  # of the kernel
_TILES = (64, 32, 16, 8, 4)


@dataclass(frozen=True)
class _Cut:
    """How a product is cut.

    Attributes:
        groups: M, in blocks that a column's cores share.
        rows: the cores of a column.
        across: N, over the columns.
    """

    groups: Split
    rows: int
    across: Split

    @property
    def tile(self) -> int:
        """The rows of a that a core takes at once."""
        return self.groups.tile // self.rows

    def cycles(self, columns: int) -> float:
        """What the busiest core takes for each entry of K, about: multiplications, and its streams
        of a and b, four bytes a cycle each, run side by side; a tile has a cost of its own.
        """
        tm, tn = self.tile, self.across.tile
        busy = max(tm * tn / _PRODUCTS, tm / 2, tn / 2) + 2
        return self.groups.blocks * self.across.each(columns) * busy


_PRODUCTS = 64  # a cycle: half of what a core can


def _cut(m: int, n: int, target: Target) -> _Cut:
    """The cut with the least work for the busiest core, and of those the one of most cores."""
    if m < _BLOCK_M or n < _BLOCK_N:
        name, size, block = ("M", m, _BLOCK_M) if m < _BLOCK_M else ("N", n, _BLOCK_N)
        raise RefusedError(f"{name} {size} is less than a block of {block}")
    cuts = [
        _Cut(Split(m, rows * tm), rows, Split(n, tn))
        for tn in _TILES
        if tn <= n and tn % _BLOCK_N == 0
        for rows in range(CORES, 0, -1)
        for tm in _TILES
        if rows * tm <= m and rows <= len(Split(n, tn).over(target.columns))
    ]
    return min(cuts, key=lambda cut: cut.cycles(target.columns))


def design(request: Request) -> Design:
    """Loops: over blocks of N, split over the columns, over blocks of M, which a column's cores
    share, over tiles of K. A tile of a is read once for the cores of a row, one of b once for those
    of a column.
    """
    target, (m, k) = request.target, request.shape("a")
    n = request.shape("y")[1]
    b_col_maj = bool(request.op.attributes()["b_col_maj"])
    if n % 2 or k % _BLOCK_K:
        raise RefusedError(f"N {n} and K {k}; N must be even and K a multiple of {_BLOCK_K}")
    cut = _cut(m, n, target)
    rows, across = cut.groups, cut.across
    steps = Split(k, next(t for t in (64, 32, 16, 8) if k % t == 0))
    tm, tn, tk = cut.tile, across.tile, steps.tile
    row, step = rows.start(1, 3), steps.start(2, 3)
    # Each column runs as often as the others, for they share the tiles of a: where there are not
    # blocks enough, the last one is made again.
    each = across.each(target.columns)
    used = len(across.over(target.columns))
    columns = ((each, rows.blocks, steps.blocks),) * used
    column = across.start(0, 3, target.columns)
    if each * used > across.blocks:
        column = Index(column.of, high=Affine(n - tn))
    own = Term(k, Index(Affine(row=tm)))
    left = Transfer("a", (tm, tk), (k, 1), (Term(k, row), own, Term(1, step)))
    right = (
        Transfer("b", (tn, tk), (k, 1), (Term(k, column), Term(1, step)))
        if b_col_maj
        else Transfer("b", (tk, tn), (n, 1), (Term(n, step), Term(1, column)))
    )
    result = Transfer("y", (rows.tile, tn), (n, 1), (Term(n, row), Term(1, column)))
    epilogue = (
        request.op.epilogue_modes[0] if isinstance(request.op, ProjectionGEMM) else Epilogue.NONE
    )
    finish = "gemm_finish" if epilogue is Epilogue.NONE else f"gemm_finish_{epilogue}"
    return Design(
        name=request.op.stem,
        target=target,
        buffers=(*request.inputs("a", "b"), *request.outputs("y")),
        columns=columns,
        streams=(
            Stream(
                "a",
                Direction.IN,
                3,
                "bfloat16",
                left.size,
                (left,),
                arrange=_into_blocks(tm, tk, _BLOCK_M, _BLOCK_K),
                broadcast=True,
            ),
            Stream(
                "b",
                Direction.IN,
                3,
                "bfloat16",
                right.size,
                (right,),
                arrange=_into_blocks(right.sizes[0], right.sizes[1], 8, 8),
                shared=True,
            ),
            Stream(
                "y",
                Direction.OUT,
                2,
                "bfloat16",
                tm * tn,
                (result,),
                depth=1,
                arrange=_out_of_blocks(rows.tile, tn),
            ),
        ),
        rows=cut.rows,
        locals=(Local("sums", "float32", tm * tn),),
        calls=(
            Call("gemm_start_bf16", 2, ("sums", tm * tn)),
            Call(
                "gemm_b_col_maj_bf16" if b_col_maj else "gemm_bf16",
                3,
                ("a", "b", "sums", tm, tn, tk),
            ),
            Call(f"{finish}_bf16", 2, ("sums", "y", tm * tn), after=True),
        ),
    )


def _into_blocks(
    rows: int, columns: int, block_rows: int, block_columns: int
) -> tuple[tuple[int, int], ...]:
    """How a tile by rows is read to have each block's elements side by side."""
    return (
        (rows // block_rows, block_rows * columns),
        (columns // block_columns, block_columns),
        (block_rows, columns),
        (block_columns, 1),
    )


def _out_of_blocks(rows: int, columns: int) -> tuple[tuple[int, int], ...]:
    """How the kernel's result, in blocks, is read by rows."""
    return (
        (rows // _BLOCK_M, _BLOCK_M * columns),
        (_BLOCK_M, _BLOCK_N),
        (columns // _BLOCK_N, _BLOCK_M * _BLOCK_N),
        (_BLOCK_N, 1),
    )
