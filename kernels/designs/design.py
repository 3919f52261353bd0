"""What a design is: data that says which tiles move where, and which kernel each column calls.

Every column runs the same program over its own part: nested loops, at each level of which tiles are
taken from streams and given to them. A level counts the loops around it: a stream of level 0 moves
one tile, one of level 2 moves one for each pass of the second loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from onnx_iron.dtypes import as_dtype
from onnx_iron.kernels.designs.target import Target


class Access(StrEnum):
    """What a design does with a buffer: reads it, writes all of it, or writes a part of it."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"


class Direction(StrEnum):
    """Of a stream: to the cores, or from them."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True)
class Port:
    """An argument of the design, in the host's memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    access: Access

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def item_bytes(self) -> int:
        return as_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Scalar:
    """A per-call integer that addresses depend on: ``low <= value <= high``."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Affine:
    """``constant + column * number + sum(loops[i] * index of loop i) + sum(factor * value)``."""

    constant: int = 0
    column: int = 0
    loops: tuple[int, ...] = ()
    values: tuple[tuple[str, int], ...] = ()

    def at(self, column: int, indices: Sequence[int], values: Mapping[str, int]) -> int:
        """The number for a column, its loops' indices and the per-call values."""
        over_loops = sum(n * i for n, i in zip(self.loops, indices, strict=False))
        over_values = sum(factor * values[name] for name, factor in self.values)
        return self.constant + self.column * column + over_loops + over_values


@dataclass(frozen=True)
class Index:
    """``min(max(of, low), high)``; a bound that is None does not bound."""

    of: Affine
    low: int | None = None
    high: Affine | None = None

    def at(self, column: int, indices: Sequence[int], values: Mapping[str, int]) -> int:
        """The number for a column, its loops' indices and the per-call values."""
        number = self.of.at(column, indices, values)
        if self.low is not None:
            number = max(number, self.low)
        return number if self.high is None else min(number, self.high.at(column, indices, values))

    def affines(self) -> Iterator[Affine]:
        yield self.of
        if self.high is not None:
            yield self.high


@dataclass(frozen=True)
class Term:
    """``stride * index``, in elements of the buffer."""

    stride: int
    index: Index


@dataclass(frozen=True)
class Transfer:
    """A walk over a buffer: sizes and strides in its elements, the outermost first."""

    buffer: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    terms: tuple[Term, ...] = ()

    @property
    def size(self) -> int:
        return int(np.prod(self.sizes, dtype=np.int64))

    def offset(self, column: int, indices: Sequence[int], values: Mapping[str, int]) -> int:
        """Where it starts."""
        return sum(term.stride * term.index.at(column, indices, values) for term in self.terms)


@dataclass(frozen=True)
class Stream:
    """Tiles that move between the host's memory and each column's core.

    Attributes:
        level: the loops that it follows.
        dtype, size: of a tile. Its transfers, one after the other, fill it.
        depth: tiles in the core's memory; with two, one moves while the other is worked on.
        arrange: sizes and strides by which a memory tile reads a tile on its way; empty, it does
            not pass a memory tile.
        broadcast: all columns get the same tiles, read once.
        source: of an outgoing stream, the incoming one whose tiles it passes on, with no core.
        chunk, room: of a stream whose size may be another in the next run: it comes in chunks of so
            many elements, which the core puts into a place for as many as fit there; 0: no such.
    """

    name: str
    direction: Direction
    level: int
    dtype: str
    size: int
    transfers: tuple[Transfer, ...]
    depth: int = 2
    arrange: tuple[tuple[int, int], ...] = ()
    broadcast: bool = False
    source: str | None = None
    chunk: int = 0
    room: int = 0

    @property
    def bytes(self) -> int:
        return self.size * as_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Local:
    """A buffer of a core's own, kept from call to call."""

    name: str
    dtype: str
    size: int

    @property
    def bytes(self) -> int:
        return self.size * as_dtype(self.dtype).itemsize


# The name of a stream or a local for its tile, an Index, or a number.
Argument: TypeAlias = str | Index | int | float


@dataclass(frozen=True)
class Call:
    """A kernel called at a level, before the loop inside it or after."""

    kernel: str
    level: int
    arguments: tuple[Argument, ...]
    after: bool = False


@dataclass(frozen=True)
class Design:
    """Streams, columns and calls.

    Attributes:
        columns: for each column used, how often each loop runs, the outermost first.
        in_place: pairs of an input and an output that may be one buffer.
        idle: a per-call value; where it is 0, nothing runs.
        told: the cores are told their numbers (trips, arguments of calls) before a run; so designs
            that differ in these, and in what moves, run one after the other on one configuration.
    """

    name: str
    target: Target
    buffers: tuple[Port, ...]
    columns: tuple[tuple[int, ...], ...]
    streams: tuple[Stream, ...]
    calls: tuple[Call, ...] = ()
    locals: tuple[Local, ...] = ()
    values: tuple[Scalar, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()
    idle: str | None = None
    told: bool = False

    def buffer(self, name: str) -> Port:
        return next(b for b in self.buffers if b.name == name)

    def possible_values(self) -> dict[str, int]:
        """Per-call values with which something runs, for addresses that are made ahead of calls:
        the lowest, but of the one that means idleness at 0, where no address need be valid.
        """
        return {v.name: v.high if v.name == self.idle else v.low for v in self.values}


@dataclass(frozen=True)
class Refusal:
    """Why there is no design."""

    reason: str
