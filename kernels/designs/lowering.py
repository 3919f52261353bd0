"""Designs for mlir-aie's IRON API, on a machine that has it.

Written from mlir-aie's published sources; nothing here has run on an NPU. Names of that API appear
in this file and in ``iron`` alone. Addresses that depend on per-call values are those of the values
given here: ``schedule`` with a call's own values says which to put in their place.

Everything has its place: column ``n`` of a design is column ``n`` of the array, its streams enter
and leave by that column's shim, and its core is the lowest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import as_dtype
from onnx_iron.kernels.aie.build import kernel_source
from onnx_iron.kernels.designs.check import passes_memory_tile
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
from onnx_iron.kernels.designs.iron import Iron
from onnx_iron.kernels.designs.schedule import Descriptor, schedule
from onnx_iron.kernels.designs.target import STACK_BYTES, WORD, shim_pattern

_DIMENSIONS = 4  # of a shim's pattern, as fill and drain take it
_SHIM, _MEMORY, _CORE = range(3)  # rows of the array; cores are in this one and those above


def lower(design: Design, values: Mapping[str, int]) -> Any:
    """The MLIR module of a design. It links its kernels from object files named as their sources.

    Args:
        values: the per-call values that the addresses are made for.

    Raises:
        ImportError: mlir-aie is not installed, or a release whose API is another.
    """
    return _Lowering(design).program(values).resolve_program()


@dataclass
class _Fifos:
    """The ends of a stream's fifos: at the shim, by column, and at the cores."""

    shim: dict[int, Any]
    core: dict[int, Any]


class _Lowering:
    def __init__(self, design: Design) -> None:
        self._iron = Iron()
        self._design = design
        self._fifos = {s.name: self._stream(s) for s in design.streams if s.source is None}
        for stream in design.streams:
            if stream.source is not None:
                self._fifos[stream.name] = self._passed_on(stream)

    def program(self, values: Mapping[str, int]) -> Any:
        """The program: a worker for each column, and the sequence of transfers."""
        design = self._design
        phases = schedule(design, values)
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
            for phase in phases:
                group = self._iron.iron.TaskGroup()
                for descriptor in phase:
                    self._move(descriptor, buffers, handles, group)
                group.finish()

        types = [_array(b.size, b.dtype) for b in design.buffers]
        runtime = self._iron.iron.Runtime(sequence, [*types, *(handle for *_, handle in ends)])
        device = self._iron.device(design.target)
        workers = [self._worker(c) for c in range(len(design.columns))] if design.calls else []
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
        words = shim_pattern(descriptor.sizes, descriptor.strides, buffer.item_bytes)
        # Sizes and strides in elements again, padded on the outside.
        per_word = WORD // buffer.item_bytes
        sizes = [*(size for size, _ in words[:-1]), words[-1][0] * per_word]
        strides = [*(stride * per_word for _, stride in words[:-1]), 1]
        padding = _DIMENSIONS - len(words)
        pattern = self._iron.pattern(
            buffer.size, descriptor.offset, [1] * padding + sizes, [0] * padding + strides
        )
        move(buffers[descriptor.buffer], tap=pattern, wait=True, group=group)

    # -- fifos ------------------------------------------------------------------------------

    def _stream(self, stream: Stream) -> _Fifos:
        """A stream's fifos. One that passes a memory tile has two, linked there."""
        columns = range(len(self._design.columns))
        if stream.broadcast:
            outer = self._fifo(stream, "memory")
            inner = self._forwarded(outer, stream, stream.name, 0)
            shim = outer.prod(tile=self._iron.tile(0, _SHIM))
            return _Fifos({0: shim}, {column: inner.cons() for column in columns})
        shim, core = {}, {}
        for column in columns:
            fifo = self._fifo(stream, str(column))
            incoming = stream.direction is Direction.IN
            near, far = (fifo, fifo)
            if passes_memory_tile(stream):
                far = self._forwarded(fifo, stream, f"{stream.name}_{column}_memory", column)
            place = self._iron.tile(column, _SHIM)
            if incoming:
                shim[column], core[column] = near.prod(tile=place), far.cons()
            else:
                core[column], shim[column] = near.prod(), far.cons(tile=place)
        return _Fifos(shim, core)

    def _passed_on(self, stream: Stream) -> _Fifos:
        """The outgoing side of tiles that no core takes: read where the incoming ones end."""
        assert stream.source is not None
        shim = {
            column: handle.forward(
                tile=self._iron.tile(column, _MEMORY),
                obj_type=_array(stream.size, stream.dtype),
                depth=stream.depth,
                name=f"{stream.name}_{column}",
            ).cons(tile=self._iron.tile(column, _SHIM))
            for column, handle in self._fifos[stream.source].core.items()
        }
        return _Fifos(shim, {})

    def _fifo(self, stream: Stream, suffix: str) -> Any:
        return self._iron.iron.ObjectFifo(
            _array(stream.size, stream.dtype), depth=stream.depth, name=f"{stream.name}_{suffix}"
        )

    def _forwarded(self, fifo: Any, stream: Stream, name: str, column: int) -> Any:
        """The fifo that goes on from the column's memory tile, in the stream's order."""
        return fifo.cons().forward(
            tile=self._iron.tile(column, _MEMORY),
            obj_type=_array(stream.size, stream.dtype),
            depth=stream.depth,
            name=name,
            **self._iron.order(stream.size, stream.arrange),
        )

    # -- cores ------------------------------------------------------------------------------

    def _worker(self, column: int) -> Any:
        """A column's core: the loops, with tiles taken and given at their levels."""
        design = self._design
        streams = [s for s in design.streams if column in self._fifos[s.name].core]
        kernels = {call.kernel: self._kernel(call) for call in design.calls}
        buffers = [
            self._iron.iron.Buffer(_array(item.size, item.dtype), name=f"{item.name}_{column}")
            for item in design.locals
        ]
        names = [*(s.name for s in streams), *(i.name for i in design.locals), *kernels]

        def core(*arguments: Any) -> None:
            parts = dict(zip(names, arguments, strict=True))
            tiles = {item.name: parts[item.name] for item in design.locals}
            self._level(column, streams, parts, tiles, [])

        handles = [self._fifos[s.name].core[column] for s in streams]
        return self._iron.iron.Worker(
            core,
            fn_args=[*handles, *buffers, *kernels.values()],
            tile=self._iron.tile(column, _CORE),
            stack_size=STACK_BYTES,
        )

    def _level(
        self,
        column: int,
        streams: Sequence[Stream],
        parts: Mapping[str, Any],
        tiles: dict[str, Any],
        indices: list[Any],
    ) -> None:
        depth, trips = len(indices), self._design.columns[column]
        here = [s for s in streams if s.level == depth]
        for stream in here:
            tiles[stream.name] = parts[stream.name].acquire(1)
        calls = [call for call in self._design.calls if call.level == depth]
        number = self._number(column, indices)
        for call in calls:
            if not call.after:
                parts[call.kernel](*(_given(a, tiles, number) for a in call.arguments))
        if depth < len(trips):
            for index in self._iron.flow.range_(trips[depth]):
                self._level(column, streams, parts, tiles, [*indices, index])
        for call in calls:
            if call.after:
                parts[call.kernel](*(_given(a, tiles, number) for a in call.arguments))
        for stream in here:
            parts[stream.name].release(1)

    def _kernel(self, call: Call) -> Any:
        parts: list[Stream | Local] = [*self._design.streams, *self._design.locals]
        tiles = {part.name: _array(part.size, part.dtype) for part in parts}
        types = [
            tiles[a] if isinstance(a, str) else np.float32 if isinstance(a, float) else np.int32
            for a in call.arguments
        ]
        return self._iron.iron.Kernel(call.kernel, f"{kernel_source(call.kernel).stem}.o", types)

    def _number(self, column: int, indices: Sequence[Any]) -> Callable[[Index], Any]:
        """Makes an Index's number where a core computes it."""
        i32 = self._iron.types.i32()

        def constant(n: int) -> Any:
            return self._iron.arith.constant(i32, n)

        def affine(of: Affine) -> Any:
            total = constant(of.constant + of.column * column)
            for factor, index in zip(of.loops, indices, strict=False):
                if factor:
                    step = self._iron.arith.index_cast(i32, index)
                    total = self._iron.arith.addi(
                        total, self._iron.arith.muli(step, constant(factor))
                    )
            return total

        def number(index: Index) -> Any:
            total = affine(index.of)
            if index.low is not None:
                total = self._iron.arith.maxsi(total, constant(index.low))
            if index.high is not None:
                total = self._iron.arith.minsi(total, affine(index.high))
            return total

        return number


def _given(argument: Argument, tiles: Mapping[str, Any], number: Callable[[Index], Any]) -> Any:
    if isinstance(argument, str):
        return tiles[argument]
    return number(argument) if isinstance(argument, Index) else argument


def _array(size: int, dtype: str) -> Any:
    """A flat array's type, as IRON writes it."""
    return np.ndarray[(size,), np.dtype[as_dtype(dtype).type]]  # type: ignore[misc]
