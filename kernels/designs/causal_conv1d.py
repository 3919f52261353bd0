"""CausalConv1d: channels over the columns, rows in order, the state carried in the core."""

from __future__ import annotations

from collections.abc import Iterator

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
from onnx_iron.kernels.designs.request import RefusedError, Request, first_that_fits
from onnx_iron.kernels.designs.tiling import Split, best_split

_BIAS, _SILU, _ROWS = 1, 2, 4  # the kernel's flags
_CHANNELS = 256  # of a tile at the most
_TILE_ROWS = 16


def design(request: Request) -> Design:
    """Loops: over sequences, over blocks of channels, over blocks of rows."""
    taps = request.shape("taps")[0]
    dilation = request.op.attributes()["dilation"]
    if dilation != 1:
        raise RefusedError(f"dilation is {dilation}; the kernel's taps read rows that follow")
    if not 2 <= taps <= 8:
        raise RefusedError(f"{taps} taps; the kernel takes 2 to 8")
    channels = request.shape("x")[-1]
    if channels < request.target.lanes or channels % 2:
        raise RefusedError(
            f"{channels} channels; it takes an even number, a vector of {request.target.lanes} "
            "lanes at the least"
        )

    def designs() -> Iterator[Design]:
        tile_rows = _TILE_ROWS
        while tile_rows:
            yield _design(request, tile_rows)
            tile_rows //= 2

    return first_that_fits(designs())


def _channels(request: Request) -> Split:
    target, channels = request.target, request.shape("x")[-1]
    if channels % target.lanes:
        whole = channels // target.lanes * target.lanes
        spread = -(-channels // target.columns // target.lanes) * target.lanes
        return Split(channels, max(target.lanes, min(_CHANNELS, spread, whole)))
    vectors = best_split(channels // target.lanes, _CHANNELS // target.lanes, target.columns)
    return Split(channels, vectors.tile * target.lanes)


def _design(request: Request, most_rows: int) -> Design:
    target = request.target
    *batch, length, channels = request.shape("x")
    sequences = batch[0] if batch else 1
    taps = request.shape("taps")[0]
    split, rows = _channels(request), best_split(length, most_rows)
    width, tile_rows = split.tile, rows.tile
    sequence = Index(Affine(loops=(1, 0, 0)))
    channel = Term(1, split.start(1, 3, target.columns))

    def matrix(name: str, count: int, *terms: Term) -> Transfer:
        return Transfer(name, (count, width), (channels, 1), (channel, *terms))

    state_place = Term((taps - 1) * channels, sequence)
    parameters = [matrix("taps", taps), matrix("state", taps - 1, state_place)]
    flags, size = 0, (2 * taps - 1) * width
    if request.has("bias"):
        parameters.append(Transfer("bias", (width,), (1,), (channel,)))
        flags, size = flags | _BIAS, size + width
    if request.has("rows"):
        parameters.append(Transfer("rows", (1,), (1,)))
        flags, size = flags | _ROWS, size + 2
    if request.op.attributes()["activation"] == "silu":
        flags |= _SILU

    first = rows.start(2, 3)
    places = (Term(length * channels, sequence), Term(channels, first))

    def tile(name: str, direction: Direction) -> Stream:
        part = matrix(name, tile_rows, *places)
        return Stream(name, direction, 3, "bfloat16", tile_rows * width, (part,))

    return Design(
        name=request.op.stem,
        target=target,
        buffers=(
            *request.inputs("x", "taps", "state", "bias", "rows"),
            *request.outputs("y", "new_state"),
        ),
        columns=tuple((sequences, steps, rows.blocks) for steps in split.over(target.columns)),
        streams=(
            tile("x", Direction.IN),
            Stream("parameters", Direction.IN, 2, "bfloat16", size, tuple(parameters), depth=1),
            tile("y", Direction.OUT),
            Stream(
                "new_state",
                Direction.OUT,
                2,
                "bfloat16",
                (taps - 1) * width,
                (matrix("new_state", taps - 1, state_place),),
                depth=1,
            ),
        ),
        locals=(Local("window", "bfloat16", (taps - 1 + tile_rows) * width),),
        calls=(
            Call(
                "causal_conv1d_bf16",
                3,
                (
                    "x",
                    "parameters",
                    "window",
                    "y",
                    "new_state",
                    tile_rows,
                    width,
                    taps,
                    first,
                    rows.due(2, 3),
                    length,
                    flags,
                ),
            ),
        ),
        in_place=() if split.overlaps else (("state", "new_state"),),
    )
