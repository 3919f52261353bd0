"""SliceScatter: entries to a per-call place, through the memory tiles."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import Access, Affine, Design, Index, Scalar, Term, Transfer
from onnx_iron.kernels.designs.moved import along, moved, start
from onnx_iron.kernels.designs.request import Request


def design(request: Request) -> Design:
    """Blocks of src's entries to their place in y, which holds x before. With ``rows``, one entry
    at a time, and those past the last valid one write that one again.
    """
    axis = int(request.op.attributes()["axis"])
    size, length = request.shape("x")[axis], request.shape("src")[axis]
    bounded = request.has("rows")
    part = along(request, "src", axis, bounded)
    entry = part.entry
    values = [Scalar("start", 0, size if bounded else size - length)]
    if bounded:
        entry = Index(entry.of, high=Affine(-1, values=(("rows", 1),)))
        values.append(Scalar("rows", 0, length))
    run, place = (part.tile * part.row,), Term(part.row, entry)
    return moved(
        request,
        (*request.inputs("src"), request.buffer("y", Access.UPDATE)),
        Transfer("src", run, (1,), (Term(length * part.row, part.stretch), place)),
        Transfer("y", run, (1,), (Term(size * part.row, part.stretch), start(part.row), place)),
        part.columns,
        values=tuple(values),
        in_place=(("x", "y"),),
        idle="rows" if bounded else None,
    )
