"""A design's transfers as the shim's DMA engines are told them: buffer descriptors, in phases."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onnx_iron.kernels.designs.design import Design, Direction, Stream, Transfer
from onnx_iron.kernels.designs.target import (
    DIMENSIONS,
    WORD,
    UnaddressableError,
    counted_pattern,
    shim_pattern,
)

_QUEUE = 4  # descriptors that a channel takes before one is done


@dataclass(frozen=True)
class Descriptor:
    """A walk over a buffer that fills or drains tiles of a stream: sizes and strides in elements,
    the outermost first.

    Attributes:
        most: how long the outermost dimension can be, where it is a per-call value; else 0.
    """

    column: int
    stream: str
    buffer: str
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    most: int = 0

    def pattern(self, item_bytes: int) -> list[tuple[int, int]]:
        """Its dimensions as a shim walks them, in words."""
        pattern = counted_pattern if self.most else shim_pattern
        return pattern(self.sizes, self.strides, item_bytes)

    def in_four(self, item_bytes: int) -> tuple[list[int], list[int]]:
        """Sizes and strides of a pattern of four dimensions, in elements again, padded on the
        outside; but where the outermost may be another at each call, that is the second, the one
        that a DMA does not count.
        """
        words, per_word = self.pattern(item_bytes), WORD // item_bytes
        sizes = [*(size for size, _ in words[:-1]), words[-1][0] * per_word]
        strides = [*(stride * per_word for _, stride in words[:-1]), 1]
        if self.most:
            sizes[1:1] = [1] * (DIMENSIONS - 1 - len(words))
            strides[1:1] = [0] * (DIMENSIONS - 1 - len(words))
        padding = DIMENSIONS - len(sizes)
        return [1] * padding + sizes, [0] * padding + strides

    def words(self, item_bytes: int) -> int:
        """How long it is."""
        return math.prod(self.sizes) * item_bytes // WORD


@dataclass(frozen=True)
class _Event:
    descriptor: Descriptor
    movable: bool  # its place or its length depends on a per-call value


def schedule(design: Design, values: Mapping[str, int]) -> list[tuple[Descriptor, ...]]:
    """The phases: descriptors that run at once, and are all awaited before the next phase.

    Tiles come in the order in which the cores take and give them, all columns in step, so that no
    phase waits for a later one. Neighbouring transfers at a constant distance share a descriptor.
    Values change offsets and lengths only, never how many descriptors there are or their order: so
    whoever has a compiled design can put this call's in place of another's.
    """
    phases: list[tuple[Descriptor, ...]] = []
    # By column and stream, its descriptors of this phase.
    running: dict[tuple[int, str], list[_Event]] = {}
    for event in _events(design, values):
        key = event.descriptor.column, event.descriptor.stream
        queue = running.setdefault(key, [])
        item_bytes = design.buffer(event.descriptor.buffer).item_bytes
        longer = _joined(queue[-1], event, item_bytes) if queue else None
        if longer is not None:
            queue[-1] = longer
            continue
        if len(queue) == _QUEUE:
            phases.append(_phase(running))
            running = {key: (queue := [])}
        queue.append(event)
    phases.append(_phase(running))
    return [phase for phase in phases if phase]


def _phase(running: Mapping[tuple[int, str], list[_Event]]) -> tuple[Descriptor, ...]:
    return tuple(event.descriptor for queue in running.values() for event in queue)


def _events(design: Design, values: Mapping[str, int]) -> Iterator[_Event]:
    """Every transfer, in the order in which the cores come to its tile."""
    loops = len(design.columns[0])
    last = max((max(trips, default=0) for trips in design.columns), default=0)
    found = []
    for column, trips in enumerate(design.columns):
        for number, stream in enumerate(design.streams):
            # A column's shim reads for all columns what the row of cores of its number gets.
            row = column if stream.broadcast else 0
            if row >= (1 if stream.shared else design.rows):
                continue
            # A tile is taken before what is inside its level, and given after it.
            out = stream.direction is Direction.OUT
            transfers = stream.transfers
            level = stream.level
            if stream.whole:
                level, transfers = 0, transfers if all(trips[:-1]) else ()
            elif len(transfers) == 1:
                item_bytes = design.buffer(transfers[0].buffer).item_bytes
                level, folded = _folded(transfers[0], trips[:level], item_bytes)
                transfers = (folded,)
            inside = (-1,) * (stream.level - level) + (last if out else -1,) * (
                loops - stream.level
            )
            for indices in itertools.product(*(range(n) for n in trips[:level])):
                for part, transfer in enumerate(transfers):
                    event = _event(stream, transfer, (column, row), indices, values)
                    found.append((((*indices, *inside), out, column, number, part), event))
    found.sort(key=lambda pair: pair[0])
    return (event for _, event in found)


def _folded(transfer: Transfer, trips: tuple[int, ...], item_bytes: int) -> tuple[int, Transfer]:
    """A transfer with as many of the inner loops as its walk can take on, and how many are left."""
    for level in range(len(trips) - 1, -1, -1):
        stride = _stride(transfer, level)
        if stride is None:
            return level + 1, transfer
        longer = replace(
            transfer,
            sizes=(trips[level], *transfer.sizes),
            strides=(stride, *transfer.strides),
        )
        if trips[level] > 1:
            if stride <= 0 or not _addressable(longer.sizes, longer.strides, item_bytes):
                return level + 1, transfer
            transfer = longer
    return 0, transfer


def _stride(transfer: Transfer, loop: int) -> int | None:
    """How far a loop's next tile is, in elements; None where that is not always the same."""
    stride = 0
    for term in transfer.terms:
        factors = [a.loops[loop] for a in term.index.affines() if loop < len(a.loops)]
        if term.index.low is not None or term.index.high is not None:
            if any(factors):
                return None
        else:
            stride += term.stride * sum(factors)
    return stride


def _event(
    stream: Stream,
    transfer: Transfer,
    core: tuple[int, int],
    indices: tuple[int, ...],
    values: Mapping[str, int],
) -> _Event:
    column, row = core
    descriptor = Descriptor(
        column,
        stream.name,
        transfer.buffer,
        transfer.offset(column, indices, values, row),
        transfer.walked(values),
        transfer.strides,
        0 if transfer.times is None else transfer.sizes[0],
    )
    affines = (a for term in transfer.terms for a in term.index.affines())
    return _Event(descriptor, bool(descriptor.most) or any(affine.values for affine in affines))


def _joined(first: _Event, second: _Event, item_bytes: int) -> _Event | None:
    """The two as one descriptor, where the second continues the first; else None."""
    a, b = first.descriptor, second.descriptor
    if first.movable or second.movable or a.buffer != b.buffer:
        return None
    if a.sizes == b.sizes and a.strides == b.strides:
        # Two of a kind begin a new outer dimension.
        stride, sizes, strides = (
            b.offset - a.offset,
            (2, *a.sizes),
            (b.offset - a.offset, *a.strides),
        )
    elif a.sizes[1:] == b.sizes and a.strides[1:] == b.strides:
        stride = a.strides[0]
        sizes, strides = (a.sizes[0] + 1, *a.sizes[1:]), a.strides
        if b.offset != a.offset + a.sizes[0] * stride:
            return None
    else:
        return None
    if stride <= 0 or not _addressable(sizes, strides, item_bytes):
        return None
    return replace(first, descriptor=replace(a, sizes=sizes, strides=strides))


@functools.cache
def _addressable(sizes: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> bool:
    try:
        shim_pattern(sizes, strides, item_bytes)
    except UnaddressableError:
        return False
    return True
