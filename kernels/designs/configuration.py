"""What of a design the array is configured with, and what its cores are told before each run."""

from __future__ import annotations

import struct
from dataclasses import replace

from onnx_iron.kernels.designs.design import Argument, Design, Index
from onnx_iron.kernels.designs.interpreter import encode


def configuration(design: Design) -> bytes:
    """An identity of the configuration: equal for designs that can follow one another on it."""
    if not design.told:
        return encode(design)
    blank = replace(
        design,
        buffers=(),
        values=(),
        columns=((0,) * len(design.columns[0]),) * len(design.columns),
        streams=tuple(replace(s, transfers=(), size=s.chunk or s.size) for s in design.streams),
        calls=tuple(
            replace(call, arguments=tuple(_blank(a) for a in call.arguments))
            for call in design.calls
        ),
        in_place=(),
        idle=None,
    )
    rooms = struct.pack(f"<{len(design.streams)}q", *(stream.room for stream in design.streams))
    return encode(blank) + rooms


def _blank(argument: Argument) -> Argument:
    if isinstance(argument, str):
        return argument
    return 0.0 if isinstance(argument, float) else 0


def numbers(design: Design, column: int) -> list[int]:
    """What a column's core is told, as words of 32 bits: how often each loop runs, of each stream
    that comes in chunks how many there are, and of each call each argument that is no tile: a
    number, or for an index its begin and what each loop around the call adds.
    """
    told = list(design.columns[column])
    told += [stream.size // stream.chunk for stream in design.streams if stream.chunk]
    for call in design.calls:
        for argument in call.arguments:
            match argument:
                case Index(of=of):
                    loops = (*of.loops, *(0,) * call.level)[: call.level]
                    told += [of.constant + of.column * column, *loops]
                case float():
                    told.append(struct.unpack("<i", struct.pack("<f", argument))[0])
                case int():
                    told.append(argument)
    return told
