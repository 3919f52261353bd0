"""Narrow: entries from a per-call place on, through the memory tiles."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import Affine, Design, Index, Scalar, Term, Transfer
from onnx_iron.kernels.designs.moved import along, moved, start
from onnx_iron.kernels.designs.request import Request


def design(request: Request) -> Design:
    """Blocks of entries from ``start`` on; one by one where some may lie past the end."""
    attributes = request.op.attributes()
    axis, length = int(attributes["axis"]), int(attributes["length"])
    size, bounded = request.shape("x")[axis], request.has("rows")
    part = along(request, "y", axis, bounded)
    entry = part.entry
    source: tuple[Term, ...] = (start(part.row), Term(part.row, entry))
    if bounded:
        affine = Affine(0, entry.of.column, entry.of.loops, (("start", 1),))
        source = (Term(part.row, Index(affine, high=Affine(size - 1))),)
    run = (part.tile * part.row,)
    values = [Scalar("start", 0, size if bounded else size - length)]
    if bounded:
        values.append(Scalar("rows", 0, length))
    return moved(
        request,
        (*request.inputs("x"), *request.outputs("y")),
        Transfer("x", run, (1,), (Term(size * part.row, part.stretch), *source)),
        Transfer("y", run, (1,), (Term(length * part.row, part.stretch), Term(part.row, entry))),
        part.columns,
        values=tuple(values),
    )
