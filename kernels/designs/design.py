"""What a design is: data that says which tiles move where, and which kernel each core calls.

Every core runs the same program over its own part: nested loops, at each level of which tiles are
taken from streams and given to them. A level counts the loops around it: a stream of level 0 moves
one tile, one of level 2 moves one for each pass of the second loop.
"""

from __future__ import annotations

import itertools
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
    """``constant + column * number + sum(loops[i] * index of loop i) + sum(factor * value)``, and
    ``row`` times the core's number in its column, and where ``each`` is given, its number for the
    column.
    """

    constant: int = 0
    column: int = 0
    loops: tuple[int, ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    row: int = 0
    each: tuple[int, ...] = ()

    def at(
        self, column: int, indices: Sequence[int], values: Mapping[str, int], row: int = 0
    ) -> int:
        """The number for a core, its loops' indices and the per-call values."""
        over_loops = sum(n * i for n, i in zip(self.loops, indices, strict=False))
        over_values = sum(factor * values[name] for name, factor in self.values)
        own = self.constant + self.column * column + (self.each[column] if self.each else 0)
        return own + self.row * row + over_loops + over_values


@dataclass(frozen=True)
class Index:
    """``min(max(of, low), high)``; a bound that is None does not bound."""

    of: Affine
    low: int | None = None
    high: Affine | None = None

    def at(
        self, column: int, indices: Sequence[int], values: Mapping[str, int], row: int = 0
    ) -> int:
        """The number for a core, its loops' indices and the per-call values."""
        number = self.of.at(column, indices, values, row)
        if self.low is not None:
            number = max(number, self.low)
        if self.high is None:
            return number
        return min(number, self.high.at(column, indices, values, row))

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
    """A walk over a buffer: sizes and strides in its elements, the outermost first.

    Attributes:
        times: a per-call value, which is how long the outermost dimension is; its size is the most.
    """

    buffer: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    terms: tuple[Term, ...] = ()
    times: str | None = None

    @property
    def size(self) -> int:
        return int(np.prod(self.sizes, dtype=np.int64))

    def offset(
        self, column: int, indices: Sequence[int], values: Mapping[str, int], row: int = 0
    ) -> int:
        """Where it starts."""
        return sum(term.stride * term.index.at(column, indices, values, row) for term in self.terms)

    def walked(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The sizes of a call."""
        return self.sizes if self.times is None else (values[self.times], *self.sizes[1:])


@dataclass(frozen=True)
class Stream:
    """Tiles that move between the host's memory and each core.

    Where a column has several cores, its memory tile cuts what its shim reads into their tiles, the
    lowest core's first, and puts their tiles together to what its shim writes.

    Attributes:
        level: the loops that it follows.
        dtype, size: of a core's tile. Its transfers, one after the other, fill the tiles of a
            column's cores, or the one tile where they share it.
        depth: tiles in the core's memory; with two, one moves while the other is worked on.
        arrange: sizes and strides by which a memory tile reads what it was filled with on its way;
            empty, it is read as it came.
        broadcast: all columns get the same tiles, read once: each row of cores its own, by the shim
            of the column of the row's number, or where all share them, by the first column's.
        shared: all cores of a column get the same tile.
        source: of an outgoing stream, the incoming one whose tiles it passes on, with no core.
        chunk, room, put: of a stream whose size may be another in the next run: it comes in chunks
            of so many elements, which a kernel puts into a place for as many as fit there, given
            the chunk, the place and where in it; 0: no such.
        whole: the transfers, one after the other, fill the tiles of all passes of the loops.
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
    shared: bool = False
    chunk: int = 0
    room: int = 0
    put: str = ""
    whole: bool = False

    @property
    def bytes(self) -> int:
        """Of a core's tile."""
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
        rows: the cores of a column that are used.
        in_place: pairs of an input and an output that may be one buffer.
        idle: a per-call value; where it is 0, nothing runs.
        told: the cores are told their numbers (trips, arguments of calls) before a run; so designs
            that differ in these, and in what moves, run one after the other on one configuration.
        innermost: how often the innermost loop runs in the first pass of those around it, and in
            the others, in place of what ``columns`` say; told cores only.
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
    rows: int = 1

    told: bool = False
    innermost: tuple[Affine, Affine] | None = None

    def parts(self, stream: Stream) -> int:
        """Of how many cores' tiles that is made which a shim moves at once."""
        return 1 if stream.shared or stream.broadcast else self.rows

    def inner(self, column: int, around: Sequence[int], values: Mapping[str, int]) -> int:
        """How often the innermost loop runs, in a pass of those around it."""
        if self.innermost is None:
            return self.columns[column][-1]
        return self.innermost[any(around)].at(column, (), values)

    def passes(
        self, column: int, level: int, values: Mapping[str, int]
    ) -> Iterator[tuple[int, ...]]:
        """The indices of all passes of the loops around a level, in order."""
        trips = self.columns[column]
        around = itertools.product(*(range(n) for n in trips[: min(level, len(trips) - 1)]))
        if level < len(trips):
            yield from around
            return
        for indices in around:
            yield from ((*indices, i) for i in range(self.inner(column, indices, values)))

    def buffer(self, name: str) -> Port:
        return next(b for b in self.buffers if b.name == name)

    def possible_values(self) -> dict[str, int]:
        """Per-call values with which something runs, for addresses that are made ahead of calls:
        the lowest, but of those that count something the highest, and of the one that means
        idleness at 0, where no address need be valid.
        """
        highest = {self.idle, *self.counted_values()}
        return {v.name: v.high if v.name in highest else v.low for v in self.values}

    def counted_values(self) -> set[str]:
        """The names of per-call values that say how long walks and loops are."""
        walks = {t.times for s in self.streams for t in s.transfers if t.times is not None}
        return walks | {name for affine in self.innermost or () for name, _ in affine.values}


@dataclass(frozen=True)
class Refusal:
    """Why there is no design."""

    reason: str
