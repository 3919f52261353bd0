"""One configuration of the array for all steps of a decoder's row: each a product or none, with
what comes before it and after it.

Every column's core has all operands but the weight, does what comes before on them, and makes its
own blocks of the result. The columns' cores are told what to do before each step, so that steps
follow one another without a change of the array, in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.design import (
    Affine,
    Argument,
    Call,
    Design,
    Direction,
    Index,
    Local,
    Port,
    Refusal,
    Scalar,
    Stream,
    Term,
    Transfer,
)
from onnx_iron.kernels.designs.target import Target
from onnx_iron.kernels.designs.tiling import Split

BLOCK = 8  # elements of a result, which a core makes at once
_STEP = 64  # what K is a multiple of, so that a block of rows is a number of tiles
TILE = BLOCK * _STEP  # elements of the weight
_DEPTH = 8  # of these tiles in a core's memory
CHUNK = 256  # elements of the operands, which arrive at a time
ROOM = 24 * 1024  # elements that all operands have together
ALIGNED = 32  # elements that each operand is a multiple of


class Prologue(IntEnum):
    """What is done to the operands, of which the first is rows of n, as the kernel numbers it."""

    NONE = 0
    NORM = 1  # RMSNorm, by a weight of n
    GATE = 2  # SiLU, times the second
    MUL = 3  # times the second
    ROPE = 4  # turned by angles of n
    ROPE_PAIRS = 5
    ATTENTION = 6  # as decode_attention.py has it
    MERGE = 7  # the states of the parts of an attention, which become heads of n


_PRODUCT, _ADD = 1, 2  # the kernel's flags


@dataclass(frozen=True)
class Stage:
    """A step.

    Attributes:
        operands: those of the prologue.
        rows, n: of the first of them.
        number: what the prologue needs besides: the norm's epsilon, how many parts.
        weight: (N, K), K what the prologue leaves; None: the result is that.
        added: a row of the result's length that is added to it.
        result: where the result goes: an array of its length, or a state of which it is one entry.
        entry: the per-call value that says which entry.
    """

    prologue: Prologue
    operands: tuple[Port, ...]
    rows: int
    n: int
    result: Port
    number: float = 0.0
    weight: Port | None = None
    added: Port | None = None
    entry: Scalar | None = None

    @property
    def length(self) -> int:
        """Elements of the result."""
        return self.rows * self.n if self.weight is None else self.weight.shape[0]


def decode(stage: Stage, target: Target) -> Design | Refusal:
    """The design of a step, or why there is none."""
    taken = (*stage.operands, *([] if stage.added is None else [stage.added]))
    for port in (*taken, *([] if stage.weight is None else [stage.weight]), stage.result):
        if port.dtype != "bfloat16":
            return Refusal(f"decode: {port.name} is {port.dtype}; the kernels take bfloat16")
    for port in taken:
        if port.size % ALIGNED:
            return Refusal(
                f"decode: {port.name} has {port.size} elements, no multiple of {ALIGNED}"
            )
    if stage.n % ALIGNED or stage.length % BLOCK:
        return Refusal(
            f"decode: rows of {stage.n} to {stage.length} elements; it takes multiples of "
            f"{ALIGNED} and {BLOCK}"
        )
    if stage.weight is not None and stage.weight.shape[1] % _STEP:
        return Refusal(f"decode: K {stage.weight.shape[1]} is no multiple of {_STEP}")
    return checked(_design(stage, taken, target))


def _design(stage: Stage, taken: Sequence[Port], target: Target) -> Design:
    blocks = Split(stage.length, BLOCK)
    over = blocks.over(target.columns)
    first = blocks.start(0, 2, target.columns)
    k = _STEP if stage.weight is None else stage.weight.shape[1]
    tiles = 0 if stage.weight is None else k // _STEP
    weight: tuple[Transfer, ...] = ()
    if stage.weight is not None:
        terms = (Term(k, first), Term(1, Index(Affine(loops=(0, TILE)))))
        weight = (Transfer(stage.weight.name, (TILE,), (1,), terms),)
    entry: tuple[Term, ...] = ()
    if stage.entry is not None:
        entry = (Term(stage.length, Index(Affine(values=((stage.entry.name, 1),)))),)
    epilogue = (_PRODUCT if stage.weight else 0) | (_ADD if stage.added else 0)
    added = sum(port.size for port in stage.operands)
    return in_blocks(
        target,
        (*taken, *([] if stage.weight is None else [stage.weight]), stage.result),
        columns=tuple((n, tiles) for n in (*over, *(0,) * (target.columns - len(over)))),
        operands=_filled(taken),
        weight=weight,
        result=Transfer(stage.result.name, (BLOCK,), (1,), (Term(1, first), *entry)),
        start=(stage.prologue, stage.rows, stage.n, _word(stage)),
        tile=(k, Index(Affine(loops=(0, TILE))), 0),
        finish=(epilogue, first, added),
        values=() if stage.entry is None else (stage.entry,),
    )


def in_blocks(
    target: Target,
    buffers: tuple[Port, ...],
    *,
    columns: tuple[tuple[int, int], ...],
    operands: tuple[Transfer, ...],
    weight: tuple[Transfer, ...],
    result: Transfer,
    start: tuple[Argument, ...],
    tile: tuple[Argument, ...],
    finish: tuple[Argument, ...],
    values: tuple[Scalar, ...],
    innermost: tuple[Affine, Affine] | None = None,
) -> Design:
    """The configuration's design. Loops: over blocks of the result, over tiles of the weight.

    Args:
        weight: of a tile; with ``innermost``, of all tiles.
        start, tile, finish: what the kernels are told beside their tiles.
    """
    return Design(
        name="decode",
        target=target,
        buffers=buffers,
        columns=columns,
        streams=(
            Stream(
                "x",
                Direction.IN,
                0,
                "bfloat16",
                sum(t.size * _elements(t, buffers) for t in operands),
                operands,
                broadcast=True,
                chunk=CHUNK,
                room=ROOM,
                put="decode_put_bf16",
            ),
            Stream(
                "weight",
                Direction.IN,
                2,
                "bfloat16",
                TILE,
                weight,
                depth=_DEPTH,
                whole=innermost is not None,
            ),
            Stream("y", Direction.OUT, 1, "bfloat16", BLOCK, (result,)),
        ),
        locals=(Local("sums", "float32", BLOCK * target.lanes),),
        calls=(
            Call("decode_start_bf16", 0, ("x", *start)),
            Call("decode_clear_bf16", 1, ("sums",)),
            Call("decode_tile_bf16", 2, ("weight", "x", "sums", *tile)),
            Call("decode_finish_bf16", 1, ("sums", "x", "y", *finish), after=True),
        ),
        values=values,
        told=True,
        innermost=innermost,
    )


def _elements(transfer: Transfer, buffers: Sequence[Port]) -> int:
    """Of x, for an element of what is moved."""
    return next(b.item_bytes for b in buffers if b.name == transfer.buffer) // 2


def _word(stage: Stage) -> int:
    """The number that the prologue needs, as the word that a core is told."""
    norm = stage.prologue is Prologue.NORM
    return int(np.float32(stage.number).view(np.int32)) if norm else int(stage.number)


def _filled(taken: Sequence[Port]) -> tuple[Transfer, ...]:
    """The operands, and as much of the first once more as fills the last chunk."""
    parts = [(port.name, port.size) for port in taken]
    first, size = parts[0]
    missing = -sum(size for _, size in parts) % CHUNK
    while missing:
        part = min(missing, size)
        parts.append((first, part))
        missing -= part
    return tuple(Transfer(name, (size,), (1,)) for name, size in parts)
