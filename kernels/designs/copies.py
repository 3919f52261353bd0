"""Copy, Narrow, SliceScatter and Embedding: tiles through the memory tiles, with no core.

Where they go may depend on per-call integers: whoever runs a design puts them into its addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.kernels.designs.design import (
    Affine,
    Buffer,
    Design,
    Direction,
    Index,
    Role,
    Stream,
    Term,
    Transfer,
    Value,
)
from onnx_iron.kernels.designs.request import RefusedError, Request, makes
from onnx_iron.kernels.designs.split import Split, best_split

_TILE = 16 * 1024  # elements at the most


@makes("Copy")
def copy(request: Request) -> Design:
    """Flat tiles over the columns."""
    n = request.size("y")
    if n % 2:
        raise RefusedError(f"{n} elements of 2 bytes; a DMA moves 4 at a time")
    words = best_split(n // 2, _TILE // 2, request.device.columns)
    split = Split(n, 2 * words.tile)
    place = (Term(1, split.start(0, 1, request.device.columns)),)
    return _moved(
        request,
        (*request.inputs("x"), *request.outputs("y")),
        Transfer("x", (split.tile,), (1,), place),
        Transfer("y", (split.tile,), (1,), place),
        tuple((steps,) for steps in split.over(request.device.columns)),
    )


@dataclass(frozen=True)
class _Axis:
    """Entries along an axis, of `outer` separate stretches, each entry `row` elements."""

    outer: int
    row: int
    columns: tuple[tuple[int, ...], ...]
    tile: int  # entries
    stretch: Index
    entry: Index


def _along(request: Request, name: str, axis: int, one_by_one: bool) -> _Axis:
    """Loops: over stretches, then over blocks of entries; the columns split the latter."""
    shape, device = request.shape(name), request.device
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    row = int(np.prod(shape[axis + 1 :], dtype=np.int64))
    if row % 2:
        raise RefusedError(f"entries of {row} elements of 2 bytes; a DMA moves 4 at a time")
    most = 1 if one_by_one else max(1, _TILE // row)
    entries = best_split(shape[axis], most, device.columns)
    return _Axis(
        outer,
        row,
        tuple((outer, steps) for steps in entries.over(device.columns)),
        entries.tile,
        Index(Affine(loops=(1, 0))),
        entries.start(1, 2, device.columns),
    )


@makes("Narrow")
def narrow(request: Request) -> Design:
    """Blocks of entries from ``start`` on; one by one where some may lie past the end."""
    attributes = request.op.attributes()
    axis, length = int(attributes["axis"]), int(attributes["length"])
    size, bounded = request.shape("x")[axis], request.has("rows")
    part = _along(request, "y", axis, bounded)
    entry = part.entry
    source: tuple[Term, ...] = (_start(part.row), Term(part.row, entry))
    if bounded:
        affine = Affine(0, entry.of.column, entry.of.loops, (("start", 1),))
        source = (Term(part.row, Index(affine, high=Affine(size - 1))),)
    run = (part.tile * part.row,)
    values = [Value("start", 0, size if bounded else size - length)]
    if bounded:
        values.append(Value("rows", 0, length))
    return _moved(
        request,
        (*request.inputs("x"), *request.outputs("y")),
        Transfer("x", run, (1,), (Term(size * part.row, part.stretch), *source)),
        Transfer("y", run, (1,), (Term(length * part.row, part.stretch), Term(part.row, entry))),
        part.columns,
        values=tuple(values),
    )


@makes("SliceScatter")
def slice_scatter(request: Request) -> Design:
    """Blocks of src's entries to their place in y, which holds x before. With ``rows``, one entry
    at a time, and those past the last valid one write that one again.
    """
    axis = int(request.op.attributes()["axis"])
    size, length = request.shape("x")[axis], request.shape("src")[axis]
    bounded = request.has("rows")
    part = _along(request, "src", axis, bounded)
    entry = part.entry
    values = [Value("start", 0, size if bounded else size - length)]
    if bounded:
        entry = Index(entry.of, high=Affine(-1, values=(("rows", 1),)))
        values.append(Value("rows", 0, length))
    run, place = (part.tile * part.row,), Term(part.row, entry)
    return _moved(
        request,
        (*request.inputs("src"), request.buffer("y", Role.STATE)),
        Transfer("src", run, (1,), (Term(length * part.row, part.stretch), place)),
        Transfer("y", run, (1,), (Term(size * part.row, part.stretch), _start(part.row), place)),
        part.columns,
        values=tuple(values),
        in_place=(("x", "y"),),
        idle="rows" if bounded else None,
    )


def _start(row: int) -> Term:
    return Term(row, Index(Affine(values=(("start", 1),))))


@makes("Embedding")
def embedding(request: Request) -> Design:
    """The rows of the ids, which are the per-call values ``ids[0]``, ``ids[1]`` and so on."""
    entries, width = request.shape("weight")
    if width % 2:
        raise RefusedError(f"rows of {width} elements of 2 bytes; a DMA moves 4 at a time")
    values = tuple(Value(f"ids[{i}]", 0, entries - 1) for i in range(request.size("ids")))
    rows = tuple(
        Transfer("weight", (width,), (1,), (Term(width, Index(Affine(values=((v.name, 1),)))),))
        for v in values
    )
    size = len(rows) * width
    return Design(
        name=request.op.stem,
        device=request.device,
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


def _moved(
    request: Request,
    buffers: tuple[Buffer, ...],
    source: Transfer,
    destination: Transfer,
    columns: tuple[tuple[int, ...], ...],
    *,
    values: tuple[Value, ...] = (),
    in_place: tuple[tuple[str, str], ...] = (),
    idle: str | None = None,
) -> Design:
    level, size = len(columns[0]), source.size
    return Design(
        name=request.op.stem,
        device=request.device,
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
