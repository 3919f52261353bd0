"""What of a design the array is configured with, and what its cores are told before each run."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

from onnx_iron.kernels.designs.design import Argument, Call, Design, Index
from onnx_iron.kernels.designs.interpreter import encode
from onnx_iron.kernels.designs.schedule import schedule


def configuration(design: Design) -> bytes:
    """An identity of the configuration: equal for designs that can follow one another on it."""
    if not design.told:
        return encode(design)
    blank = replace(
        design,
        buffers=(),
        values=(),
        columns=((0,) * len(design.columns[0]),) * len(design.columns),
        innermost=None,
        streams=tuple(
            replace(s, transfers=(), size=s.chunk or s.size, whole=False) for s in design.streams
        ),
        calls=tuple(
            replace(call, arguments=tuple(_blank(a) for a in call.arguments))
            for call in design.calls
        ),
        in_place=(),
        idle=None,
    )
    rooms = struct.pack(f"<{len(design.streams)}q", *(s.room for s in design.streams))
    return encode(blank) + rooms


def _blank(argument: Argument) -> Argument:
    return argument if isinstance(argument, str) else 0


def numbers(design: Design, column: int, values: Mapping[str, int]) -> list[int]:
    """What a column's core is told, as words of 32 bits: how often each loop runs, of the innermost
    one how often in all passes and how much more often in the first; of each stream that comes in
    chunks how many there are; and of each call each argument that is no tile: a number, or for an
    index its begin and what each loop around the call adds.
    """
    told = [*design.columns[column][:-1], *_inner(design, column, values)]
    told += [stream.size // stream.chunk for stream in design.streams if stream.chunk]
    for call in design.calls:
        for argument in call.arguments:
            match argument:
                case Index(of=of):
                    loops = (*of.loops, *(0,) * call.level)[: call.level]
                    told += [replace(of, values=()).at(column, (), {}), *loops]
                case int():
                    told.append(int(argument))
    return told


def told_words(design: Design) -> int:
    """How many words a core is told."""
    return len(numbers(design, 0, design.possible_values()))


def _inner(design: Design, column: int, values: Mapping[str, int]) -> tuple[int, int]:
    if design.innermost is None:
        return design.columns[column][-1], 0
    first, others = (affine.at(column, (), values) for affine in design.innermost)
    return others, first - others


def counts(design: Design, values: Mapping[str, int]) -> list[int]:
    """The words of the instructions that depend on per-call values beside addresses, in their
    order: what each column's core is told of the innermost loop, and the lengths of walks.
    """
    words: list[int] = []
    if design.innermost is not None:
        first, others = design.innermost
        varies = others.values != (), first.values != others.values
        for column in range(len(design.columns)):
            inner = _inner(design, column, values)
            words += [n for n, moves in zip(inner, varies, strict=True) if moves]
    return words + [
        walk.words(design.buffer(walk.buffer).item_bytes)
        for phase in schedule(design, values)
        for walk in phase
        if walk.most
    ]


def words_of(call: Call) -> int:
    """How many of them are a call's."""
    return sum(
        1 + (call.level if isinstance(argument, Index) else 0)
        for argument in call.arguments
        if not isinstance(argument, str)
    )
