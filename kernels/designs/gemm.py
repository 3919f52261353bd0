"""GEMM and ProjectionGEMM: tiles of the products, float32 sums kept over tiles of K."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import (
    Call,
    Design,
    Direction,
    Local,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.tiling import Split
from onnx_iron.operators.gemm import Epilogue, ProjectionGEMM

_BLOCK_M, _BLOCK_N, _BLOCK_K = 4, 8, 8  # of the kernel


def _tile(name: str, size: int, block: int, columns: int) -> Split:
    """The tiles, of a whole number of blocks, with the least work for the busiest column."""
    fitting = [t for t in (64, 32, 16, 8, 4) if t <= size and t % block == 0]
    if not fitting:
        raise RefusedError(f"{name} {size} is less than a block of {block}")
    # A tile's own cost counts as much as sixteen entries.
    tile = min(fitting, key=lambda t: Split(size, t).each(columns) * (t + 16))
    return Split(size, tile)


def design(request: Request) -> Design:
    """Loops: over blocks of N, split over the columns, over blocks of M, over tiles of K."""
    target, (m, k) = request.target, request.shape("a")
    n = request.shape("y")[1]
    b_col_maj = bool(request.op.attributes()["b_col_maj"])
    if n % 2 or k % _BLOCK_K:
        raise RefusedError(f"N {n} and K {k}; N must be even and K a multiple of {_BLOCK_K}")
    rows = _tile("M", m, _BLOCK_M, 1)
    across = _tile("N", n, _BLOCK_N, target.columns)
    steps = Split(k, next(t for t in (64, 32, 16, 8) if k % t == 0))
    tm, tn, tk = rows.tile, across.tile, steps.tile
    column, row, step = across.start(0, 3, target.columns), rows.start(1, 3), steps.start(2, 3)
    left = Transfer("a", (tm, tk), (k, 1), (Term(k, row), Term(1, step)))
    right = (
        Transfer("b", (tn, tk), (k, 1), (Term(k, column), Term(1, step)))
        if b_col_maj
        else Transfer("b", (tk, tn), (n, 1), (Term(n, step), Term(1, column)))
    )
    result = Transfer("y", (tm, tn), (n, 1), (Term(n, row), Term(1, column)))
    columns = tuple((blocks, rows.blocks, steps.blocks) for blocks in across.over(target.columns))
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
                # Read once for all columns, where they take it equally often.
                broadcast=len(set(columns)) == 1,
            ),
            Stream(
                "b",
                Direction.IN,
                3,
                "bfloat16",
                right.size,
                (right,),
                arrange=_into_blocks(right.sizes[0], right.sizes[1], 8, 8),
            ),
            Stream(
                "y",
                Direction.OUT,
                2,
                "bfloat16",
                result.size,
                (result,),
                depth=1,
                arrange=_out_of_blocks(tm, tn),
            ),
        ),
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
