"""Designs for mlir-aie's IRON API, on a machine that has it.

Written from mlir-aie's published sources; nothing here has run on an NPU. Names of that API appear
in this file and in ``iron`` alone. Addresses that depend on per-call values are those of the values
given here: ``schedule`` with a call's own values says which to put in their place.

Everything has its place: column ``n`` of a design is column ``n`` of the array, its streams enter
and leave by that column's shim, and its cores are the lowest ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from onnx_iron.kernels.aie.build import kernel_source
from onnx_iron.kernels.designs.check import passes_memory_tile
from onnx_iron.kernels.designs.configuration import numbers, told_words
from onnx_iron.kernels.designs.design import (
    Affine,
    Argument,
    Call,
    Design,
    Direction,
    Index,
    Local,
    Stream,
)
from onnx_iron.kernels.designs.iron import Iron, array_type, place_of, tile_type
from onnx_iron.kernels.designs.schedule import Descriptor, schedule
from onnx_iron.kernels.designs.target import STACK_BYTES
from onnx_iron.kernels.designs.told import Numbers

_SHIM, _MEMORY, _CORE = range(3)  # rows of the array; cores are in this one and those above


def lower(design: Design, values: Mapping[str, int]) -> Any:
    """The MLIR module of a design. It links its kernels from object files named as their sources.

    Args:
        values: the per-call values that the addresses are made for.

    Raises:
        ImportError: mlir-aie is not installed, or a release whose API is another.
    """
    return _Lowering(design).program(values).resolve_program()


_At: TypeAlias = tuple[int, int]


@dataclass
class _Fifos:
    """The ends of a stream's fifos: at the shim, by column, and at the cores, by column and row."""

    shim: dict[int, Any]
    core: dict[_At, Any]


@dataclass
class _Told:
    """Words that the sequence writes into a core, and what tells the core that they are there."""

    words: Any
    ready: Any


class _Lowering:
    def __init__(self, design: Design) -> None:
        self._iron = Iron()
        self._design = design
        self._told = [self._words(c) for c in range(len(design.columns))] if design.told else []
        self._fifos = {s.name: self._stream(s) for s in design.streams if s.source is None}
        for stream in design.streams:
            if stream.source is not None:
                self._fifos[stream.name] = self._passed_on(stream)

    def program(self, values: Mapping[str, int]) -> Any:
        """The program: a worker for each core, and the sequence of transfers."""
        design = self._design
        phases = schedule(design, values)
        told = [numbers(design, column, values) for column in range(len(self._told))]
        ends = [
            (stream.name, column, handle)
            for stream in design.streams
            for column, handle in self._fifos[stream.name].shim.items()
        ]

        def sequence(*arguments: Any) -> None:
            names = [b.name for b in design.buffers]
            buffers = dict(zip(names, arguments, strict=False))
            handles = {
                end[:2]: handle for end, handle in zip(ends, arguments[len(names) :], strict=True)
            }
            for words, column in zip(told, self._told, strict=False):
                for place, word in enumerate(words):
                    column.words[place] = word
                column.ready.set(1)
            for phase in phases:
                group = self._iron.iron.TaskGroup()
                for descriptor in phase:
                    self._move(descriptor, buffers, handles, group)
                group.finish()

        types = [array_type(b.size, b.dtype) for b in design.buffers]
        runtime = self._iron.iron.Runtime(sequence, [*types, *(handle for *_, handle in ends)])
        device = self._iron.device(design.target)
        workers = [self._worker(at) for at in self._cores()] if design.calls else []
        return self._iron.iron.Program(device, runtime, workers=workers)

    def _move(
        self,
        descriptor: Descriptor,
        buffers: Mapping[str, Any],
        handles: Mapping[tuple[str, int], Any],
        group: Any,
    ) -> None:
        stream = next(s for s in self._design.streams if s.name == descriptor.stream)
        handle = handles[descriptor.stream, descriptor.column]
        move = handle.fill if stream.direction is Direction.IN else handle.drain
        buffer = self._design.buffer(descriptor.buffer)
        pattern = self._iron.pattern(
            buffer.size, descriptor.offset, *descriptor.in_four(buffer.item_bytes)
        )
        move(buffers[descriptor.buffer], tap=pattern, wait=True, group=group)

    # -- fifos ------------------------------------------------------------------------------

    def _stream(self, stream: Stream) -> _Fifos:
        """A stream's fifos. One that passes a memory tile has two, linked there."""
        if stream.broadcast:
            return self._broadcast(stream)
        shim: dict[int, Any] = {}
        core: dict[_At, Any] = {}
        for column in range(len(self._design.columns)):
            place = self._iron.tile(column, _SHIM)
            if self._design.parts(stream) > 1:
                shim[column], ends = self._in_parts(stream, column)
                core.update({(column, row): end for row, end in enumerate(ends)})
                continue
            near = far = self._fifo(stream, str(column))
            if passes_memory_tile(self._design, stream):
                far = self._forwarded(near, stream, f"{stream.name}_{column}_memory", column)
            if stream.direction is Direction.IN:
                shim[column] = near.prod(tile=place)
                core.update({(column, row): far.cons() for row in range(self._design.rows)})
            else:
                core[column, 0], shim[column] = near.prod(), far.cons(tile=place)
        return _Fifos(shim, core)

    def _broadcast(self, stream: Stream) -> _Fifos:
        """Fifos to the cores of all columns: one for each row, or one for all that share."""
        rows = list(range(self._design.rows))
        shim, core = {}, {}
        for column, reached in enumerate([rows] if stream.shared else [[row] for row in rows]):
            outer = self._fifo(stream, f"{column}_memory")
            inner = self._forwarded(outer, stream, f"{stream.name}_{column}", column)
            shim[column] = outer.prod(tile=self._iron.tile(column, _SHIM))
            core.update({at: inner.cons() for at in self._cores() if at[1] in reached})
        return _Fifos(shim, core)

    def _in_parts(self, stream: Stream, column: int) -> tuple[Any, list[Any]]:
        """The end at a column's shim of what its memory tile cuts into its cores' tiles, or puts
        together of them, and the cores' ends.
        """
        parts = range(self._design.parts(stream))
        incoming = stream.direction is Direction.IN
        size, order = len(parts) * stream.size, stream.arrange
        whole = self._iron.iron.ObjectFifo(
            array_type(size, stream.dtype),
            depth=stream.depth,
            name=f"{stream.name}_{column}_memory",
            **({} if incoming else self._iron.order(size, order)),
        )
        details: dict[str, Any] = {
            "tile": self._iron.tile(column, _MEMORY),
            "depths": [stream.depth for _ in parts],
            "obj_types": [array_type(stream.size, stream.dtype) for _ in parts],
            "names": [f"{stream.name}_{column}_{part}" for part in parts],
        }
        offsets = [part * stream.size for part in parts]
        place = self._iron.tile(column, _SHIM)
        if not incoming:
            made = whole.prod().join(offsets, **details)
            return whole.cons(tile=place), [fifo.prod() for fifo in made]
        if order:
            (outer, stride), *inner = order
            one = self._iron.order(stream.size, ((outer // len(parts), stride), *inner))
            details.update({name: [value for _ in parts] for name, value in one.items()})
        made = whole.cons().split(offsets, **details)
        return whole.prod(tile=place), [fifo.cons() for fifo in made]

    def _passed_on(self, stream: Stream) -> _Fifos:
        """The outgoing side of tiles that no core takes: read where the incoming ones end."""
        assert stream.source is not None
        shim = {
            column: handle.forward(
                tile=self._iron.tile(column, _MEMORY),
                obj_type=array_type(stream.size, stream.dtype),
                depth=stream.depth,
                name=f"{stream.name}_{column}",
            ).cons(tile=self._iron.tile(column, _SHIM))
            for (column, _), handle in self._fifos[stream.source].core.items()
        }
        return _Fifos(shim, {})

    def _fifo(self, stream: Stream, suffix: str) -> Any:
        return self._iron.iron.ObjectFifo(
            tile_type(stream), depth=stream.depth, name=f"{stream.name}_{suffix}"
        )

    def _forwarded(self, fifo: Any, stream: Stream, name: str, column: int) -> Any:
        """The fifo that goes on from the column's memory tile, in the stream's order."""
        return fifo.cons().forward(
            tile=self._iron.tile(column, _MEMORY),
            obj_type=tile_type(stream),
            depth=stream.depth,
            name=name,
            **self._iron.order(stream.size, stream.arrange),
        )

    # -- cores ------------------------------------------------------------------------------

    def _cores(self) -> list[_At]:
        rows = range(self._design.rows)
        return [(column, row) for column in range(len(self._design.columns)) for row in rows]

    def _worker(self, at: _At) -> Any:
        """A core: the loops, with tiles taken and given at their levels."""
        design, (column, row) = self._design, at
        streams = [s for s in design.streams if at in self._fifos[s.name].core]
        kernels = {call.kernel: self._kernel(call) for call in design.calls}
        kernels |= {s.put: self._putting(s) for s in streams if s.chunk}
        buffers = {
            item.name: self._iron.iron.Buffer(
                array_type(item.size, item.dtype), name=f"{item.name}_{column}_{row}"
            )
            for item in design.locals
        } | {
            place_of(s): self._iron.iron.Buffer(
                array_type(s.room, s.dtype), name=f"{place_of(s)}_{column}_{row}"
            )
            for s in streams
            if s.chunk
        }
        told = [self._told[column].words, self._told[column].ready] if design.told else []
        names = [*(s.name for s in streams), *buffers, *kernels]

        def core(*arguments: Any) -> None:
            parts = dict(zip(names, arguments, strict=False))
            tiles = {item.name: parts[item.name] for item in design.locals}
            numbers = Numbers(design, self._iron, *arguments[len(names) :]) if told else None
            self._level(at, streams, parts, tiles, [], numbers)

        handles = [self._fifos[s.name].core[at] for s in streams]
        return self._iron.iron.Worker(
            core,
            fn_args=[*handles, *buffers.values(), *kernels.values(), *told],
            tile=self._iron.tile(column, _CORE + row),
            stack_size=STACK_BYTES,
        )

    def _level(
        self,
        at: _At,
        streams: Sequence[Stream],
        parts: Mapping[str, Any],
        tiles: dict[str, Any],
        indices: list[Any],
        told: Numbers | None,
    ) -> None:
        depth = len(indices)
        trips = self._design.columns[at[0]]
        here = [s for s in streams if s.level == depth]
        for stream in here:
            if stream.chunk:
                assert told is not None
                self._put_together(stream, parts, told.chunks[stream.name])
                tiles[stream.name] = parts[place_of(stream)]
            else:
                tiles[stream.name] = parts[stream.name].acquire(1)
        calls = [call for call in self._design.calls if call.level == depth]

        def call_them(after: bool) -> None:
            for call in calls:
                if call.after is after:
                    words = None if told is None else told.arguments(call)
                    number = self._number(at, indices, words)
                    parts[call.kernel](*(_given(a, tiles, number) for a in call.arguments))

        call_them(after=False)
        if depth < len(trips):
            count = trips[depth]
            if told is not None:
                inner = depth + 1 == len(trips)
                count = told.inner(indices) if inner else told.trips[depth]
            for index in self._iron.flow.range_(count):
                self._level(at, streams, parts, tiles, [*indices, index], told)
        call_them(after=True)
        for stream in here:
            if not stream.chunk:
                parts[stream.name].release(1)

    def _put_together(self, stream: Stream, parts: Mapping[str, Any], count: Any) -> None:
        """All chunks of a stream, to their place."""
        i32 = self._iron.types.i32()
        for index in self._iron.flow.range_(count):
            first = self._iron.arith.muli(
                self._iron.arith.index_cast(i32, index),
                self._iron.arith.constant(i32, stream.chunk),
            )
            parts[stream.put](parts[stream.name].acquire(1), parts[place_of(stream)], first)
            parts[stream.name].release(1)

    def _kernel(self, call: Call) -> Any:
        parts: list[Stream | Local] = [*self._design.streams, *self._design.locals]
        tiles = {
            part.name: array_type(part.room, part.dtype)
            if isinstance(part, Stream) and part.chunk
            else array_type(part.size, part.dtype)
            for part in parts
        }
        types = [
            tiles[a] if isinstance(a, str) else np.float32 if isinstance(a, float) else np.int32
            for a in call.arguments
        ]
        return self._named(call.kernel, types)

    def _putting(self, stream: Stream) -> Any:
        return self._named(
            stream.put, [tile_type(stream), array_type(stream.room, stream.dtype), np.int32]
        )

    def _named(self, kernel: str, types: Sequence[Any]) -> Any:
        return self._iron.iron.Kernel(kernel, f"{kernel_source(kernel).stem}.o", list(types))

    def _words(self, column: int) -> _Told:
        """Where a column's core is told its numbers."""
        words = self._iron.iron.Buffer(
            array_type(told_words(self._design), "int32"),
            name=f"told_{column}",
            use_write_rtp=True,
        )
        return _Told(words, self._iron.iron.WorkerRuntimeBarrier())

    def _number(
        self, at: _At, indices: Sequence[Any], told: Iterator[Any] | None
    ) -> Callable[[Index | int], Any]:
        """Makes a number where a core computes it: of what the design says, or of what the core is
        told for a call's arguments, in their order.
        """
        i32, arith = self._iron.types.i32(), self._iron.arith

        def constant(n: int) -> Any:
            return arith.constant(i32, n)

        def plus(total: Any, index: Any, factor: Any) -> Any:
            return arith.addi(total, arith.muli(arith.index_cast(i32, index), factor))

        def affine(of: Affine) -> Any:
            total = constant(of.constant + of.column * at[0] + of.row * at[1])
            for factor, index in zip(of.loops, indices, strict=False):
                if factor:
                    total = plus(total, index, constant(factor))
            return total

        def number(argument: Index | int) -> Any:
            if told is not None:
                total = next(told)
                if isinstance(argument, Index):
                    for index in indices:
                        total = plus(total, index, next(told))
                return total
            if isinstance(argument, int):
                return argument
            total = affine(argument.of)
            if argument.low is not None:
                total = arith.maxsi(total, constant(argument.low))
            if argument.high is not None:
                total = arith.minsi(total, affine(argument.high))
            return total

        return number


def _given(
    argument: Argument, tiles: Mapping[str, Any], number: Callable[[Index | int], Any]
) -> Any:
    if isinstance(argument, str):
        return tiles[argument]
    return argument if isinstance(argument, float) else number(argument)
