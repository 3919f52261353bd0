"""Designs of what only moves elements: tiles through the memory tiles, with no core.

Where they go may depend on per-call integers: whoever runs a design puts them into its addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.kernels.designs.design import (
    Affine,
    Design,
    Direction,
    Index,
    Port,
    Scalar,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.tiling import best_split

TILE = 16 * 1024  # elements at the most


@dataclass(frozen=True)
class Axis:
    """Entries along an axis, of `outer` separate stretches, each entry `row` elements."""

    outer: int
    row: int
    columns: tuple[tuple[int, ...], ...]
    tile: int  # entries
    stretch: Index
    entry: Index


def along(request: Request, name: str, axis: int, one_by_one: bool) -> Axis:
    """Loops: over stretches, then over blocks of entries; the columns split the latter."""
    shape, target = request.shape(name), request.target
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    row = int(np.prod(shape[axis + 1 :], dtype=np.int64))
    if row % 2:
        raise RefusedError(f"entries of {row} elements of 2 bytes; a DMA moves 4 at a time")
    most = 1 if one_by_one else max(1, TILE // row)
    entries = best_split(shape[axis], most, target.columns)
    return Axis(
        outer,
        row,
        tuple((outer, steps) for steps in entries.over(target.columns)),
        entries.tile,
        Index(Affine(loops=(1, 0))),
        entries.start(1, 2, target.columns),
    )


def start(row: int) -> Term:
    """The per-call value ``start``, of entries of `row` elements."""
    return Term(row, Index(Affine(values=(("start", 1),))))


def moved(
    request: Request,
    buffers: tuple[Port, ...],
    source: Transfer,
    destination: Transfer,
    columns: tuple[tuple[int, ...], ...],
    *,
    values: tuple[Scalar, ...] = (),
    in_place: tuple[tuple[str, str], ...] = (),
    idle: str | None = None,
) -> Design:
    """Tiles of ``source`` to ``destination``, loop by loop.

    Args:
        columns: for each column how often each loop runs.
        idle: a per-call value; where it is 0, nothing moves.
    """
    level, size = len(columns[0]), source.size
    return Design(
        name=request.op.stem,
        target=request.target,
        buffers=buffers,
        columns=columns,
        streams=(
            Stream("taken", Direction.IN, level, "bfloat16", size, (source,)),
            Stream("given", Direction.OUT, level, "bfloat16", size, (destination,), source="taken"),
        ),
        values=values,
        in_place=in_place,
        idle=idle,
    )
