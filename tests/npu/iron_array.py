"""What an array of tiles can hold, as mlir-aie's target models and the register maps have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

COLUMNS = {"npu1": 4, "npu2": 8}
ROWS = 6  # a shim, a memory tile, four cores


class Kind(Enum):
    """Of a tile."""

    SHIM = range(1)
    MEMORY = range(1, 2)
    CORE = range(2, ROWS)


BYTES = {Kind.MEMORY: 512 * 1024, Kind.CORE: 64 * 1024}
CHANNELS = {Kind.SHIM: 2, Kind.MEMORY: 6, Kind.CORE: 2}  # as many in as out
DESCRIPTORS = {Kind.MEMORY: 48, Kind.CORE: 16}
LOCKS = {Kind.MEMORY: 64, Kind.CORE: 16}


class Limits:
    """Of the DMA engines."""

    SHIM_DESCRIPTORS = 16
    QUEUE = 4
    WRAP = 1023  # of the two inner dimensions, in words
    REPEATS = 64
    SHIM_STEP, MEMORY_STEP = 1 << 20, 1 << 17  # words

    @classmethod
    def check_shim_pattern(
        cls, sizes: Sequence[int], strides: Sequence[int], offset: int, item: int
    ) -> None:
        """Refuse a walk of four dimensions that a shim can't do."""
        if len(sizes) != 4:
            raise ValueError(f"{len(sizes)} dimensions of a shim's four: the first is its repeat")
        if offset * item % 4 or sizes[3] * item % 4 or strides[3] != 1:
            raise ValueError(f"words of 4 bytes: offset {offset}, {sizes} by {strides}")
        if list(sizes[:3]) != [1, 1, 1] and (
            sizes[3] * item // 4 > cls.WRAP or sizes[2] > cls.WRAP
        ):
            raise ValueError(f"inner sizes {sizes[2:]} above {cls.WRAP} words")
        if sizes[0] > cls.REPEATS:
            raise ValueError(f"{sizes[0]} repeats of {cls.REPEATS}")
        for size, stride in zip(sizes[:3], strides[:3], strict=True):
            if size > 1 and (stride * item % 4 or not 4 <= stride * item <= 4 * cls.SHIM_STEP):
                raise ValueError(f"a stride of {stride} elements of {item} bytes")

    @classmethod
    def check_memory_pattern(cls, order: Sequence[tuple[int, int]], item: int) -> None:
        """Refuse an order in which a memory tile can't read."""
        if not 1 <= len(order) <= 4:
            raise ValueError(f"{len(order)} dimensions of a memory tile's four")
        *outer, (inner, step) = order
        if step != 1 or inner * item % 4 or any(stride * item % 4 for _, stride in outer):
            raise ValueError(f"words of 4 bytes: {order} of {item} bytes")
        if any(size > cls.WRAP for size, _ in outer[-3:]) or inner * item // 4 > cls.WRAP:
            raise ValueError(f"sizes of {order} above {cls.WRAP}")
        if any(stride * item > 4 * cls.MEMORY_STEP for _, stride in outer):
            raise ValueError(f"strides of {order} above {cls.MEMORY_STEP} words")

    @classmethod
    def check_group(cls, tasks: Iterable[tuple[str, int, bool]]) -> None:
        """Refuse tasks that are under way at once: of a fifo, at a column's shim, in or out."""
        listed = list(tasks)
        for (name, *_), count in Counter(listed).items():
            if count > cls.QUEUE:
                raise ValueError(f"{count} tasks in the queue of {name}, which takes {cls.QUEUE}")
        for column, count in Counter(column for _, column, _ in listed).items():
            if count > cls.SHIM_DESCRIPTORS:
                raise ValueError(f"{count} descriptors in the shim of column {column}")


class Array:
    """A program's fifos and workers in their places."""

    def __init__(
        self,
        columns: int,
        fifos: Iterable[Any],
        workers: Sequence[Any],
        bytes_of: Callable[[Any], int],
    ) -> None:
        self._columns, self._fifos, self._workers = columns, list(fifos), workers
        self._bytes_of = bytes_of

    def check(self) -> None:
        """Refuse what is nowhere, in the wrong place, or too much for its place."""
        channels: Counter[tuple[Kind, int, int, bool]] = Counter()
        taken: Counter[tuple[Kind, int, int]] = Counter()
        descriptors: Counter[tuple[Kind, int, int]] = Counter()
        locks: Counter[tuple[Kind, int, int]] = Counter()
        for fifo in self._fifos:
            ends = [fifo.producer, *fifo.consumers]
            if len(ends) < 2 or None in ends:
                raise ValueError(f"{fifo.name} has one end only")
            for end in ends:
                if end.endpoint is None:
                    raise ValueError(f"an end of {fifo.name} that nobody uses")
                place = self._place(*end.endpoint)
                channels[*place, end.produces] += 1
                if place[0] is not Kind.SHIM:
                    descriptors[place] += end.depth
                    locks[place] += 2
                    # What meets in a memory tile is in the buffers of the whole.
                    size = 0 if end.is_part else self._bytes_of(fifo.obj_type)
                    taken[place] += end.depth * size
        for worker in self._workers:
            place = self._place(Kind.CORE, worker.tile)
            taken[place] += worker.stack_size
            taken[place] += sum(
                self._bytes_of(part.type) for part in worker.fn_args if hasattr(part, "type")
            )
        places = [self._place(Kind.CORE, worker.tile) for worker in self._workers]
        if len(set(places)) < len(places):
            raise ValueError("two workers on one core")
        for (kind, column, row, produces), count in channels.items():
            if count > CHANNELS[kind]:
                way = "out" if produces else "in"
                raise ValueError(f"{count} channels {way} of tile {column}, {row}")
        for what, counted, limit in (
            ("bytes", taken, BYTES),
            ("descriptors", descriptors, DESCRIPTORS),
            ("locks", locks, LOCKS),
        ):
            for (kind, column, row), count in counted.items():
                if count > limit[kind]:
                    raise ValueError(f"{count} {what} in tile {column}, {row} of {limit[kind]}")

    def _place(self, kind: Kind, tile: Any) -> tuple[Kind, int, int]:
        if tile is None or tile.col is None or tile.row is None:
            raise ValueError(f"a {kind.name.lower()} without a place")
        if not 0 <= tile.col < self._columns or tile.row not in kind.value:
            raise ValueError(f"tile {tile.col}, {tile.row} is no {kind.name.lower()} here")
        return kind, tile.col, tile.row
