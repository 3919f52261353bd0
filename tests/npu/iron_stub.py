"""mlir-aie's IRON API as far as a lowering may use it, in two releases, refusing what they refuse.

Names, parameters and checks are those of the published sources of mlir-aie 1.4.0 and of the later
one that took ``dims_to_stream`` away; what a call says is kept, and what the array of tiles can
hold is checked by ``iron_array``. A core's program and the sequence run when the program is
resolved, loops and numbers in plain Python.
"""

from __future__ import annotations

import contextlib
import math
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any, get_origin

import numpy as np
import pytest
from iron_array import COLUMNS, Array, Kind, Limits
from iron_values import (
    ARITHMETIC,
    TensorAccessPattern,
    Tile,
    Value,
    bytes_of,
    dtype_of,
    loop,
    size_of,
)

RELEASES = ("1.4.0", "1.4.5")


class Element:
    """A tile that a core holds."""

    def __init__(self, of: str, type_: Any) -> None:
        self.fifo, self.type = of, type_


class RuntimeData:
    def __init__(self, number: int, type_: Any) -> None:
        self.number, self.size, self.dtype = number, size_of(type_), dtype_of(type_)


class Stub:
    """An installed mlir-aie, and what it was told.

    Attributes:
        calls: the kernel, its column and row, the arguments.
        moves: "fill" or "drain", the fifo, the buffer's number, the pattern.
        orders: by fifo, the sizes and strides by which a memory tile reads its tiles.
    """

    def __init__(self, release: str) -> None:
        self.release = release
        self.calls: list[tuple[str, tuple[int, int], tuple[Any, ...]]] = []
        self.moves: list[tuple[str, str, int, TensorAccessPattern]] = []
        self.orders: dict[str, list[tuple[int, int]]] = {}
        self.fifos: dict[str, Any] = {}
        self.groups: list[Any] | None = None
        self.kernels: dict[str, tuple[str, str]] = {}
        self.at = (-1, -1)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Stub:
        """Put it where ``import aie.iron`` finds it."""
        modules = {
            "aie.iron": api(self),
            "aie.iron.device": {
                "Tile": Tile,
                "NPU1": lambda: "npu1",
                "NPU2": lambda: "npu2",
            },
            "aie.iron.controlflow": {"range_": loop},
            "aie.helpers.taplib": {"TensorAccessPattern": TensorAccessPattern},
            "aie.dialects.arith": ARITHMETIC,
            "aie.extras.types": {"i32": lambda: "i32"},
        }
        for name, members in modules.items():
            module = types.ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
        for package in ("aie", "aie.helpers", "aie.dialects", "aie.extras"):
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        return self


def api(stub: Stub) -> dict[str, Any]:
    """The members of ``aie.iron`` in a release."""
    by_pattern = stub.release != RELEASES[0]

    class Handle:
        def __init__(self, fifo: Any, produces: bool, depth: int | None, tile: Any) -> None:
            self.fifo, self.produces = fifo, produces
            self.depth = fifo.depth if depth is None else depth
            self.shim_tile = tile
            self.endpoint: tuple[Kind, Any] | None = None
            self.held = self.count = 0
            # In a memory tile: the fifos that go on, and whether theirs are the buffers.
            self.beyond: list[Any] = []
            self.is_part = False

        def bind(self, kind: Kind, tile: Any) -> None:
            if self.endpoint is not None:
                raise ValueError(f"Endpoint already set for ObjectFifoHandle {self.fifo.name}")
            if tile is None or tile.col is None or tile.row is None:
                raise ValueError(f"{self.fifo.name}: an end without a place")
            if self.shim_tile is not None and kind is not Kind.SHIM:
                raise ValueError(f"{self.fifo.name}: a shim's place for an end elsewhere")
            self.endpoint = (kind, tile)

        def acquire(self, num_elem: int) -> Element:
            assert num_elem == 1, "several tiles at once are a list, which kernels do not take"
            self.held += num_elem
            if self.held > self.depth:
                raise ValueError(f"{self.held} tiles of {self.fifo.name} of {self.depth}")
            return Element(self.fifo.name, self.fifo.obj_type)

        def release(self, num_elem: int) -> None:
            self.held -= num_elem
            self.count += num_elem
            if self.held < 0:
                raise ValueError(f"a tile of {self.fifo.name} is given back that was not taken")

        def _move(self, verb: str, data: Any, tap: Any, wait: bool, group: Any) -> None:
            if stub.groups is None:
                raise RuntimeError(f"{verb} outside of a sequence")
            assert self.endpoint is not None
            assert self.endpoint[0] is Kind.SHIM
            if not isinstance(data, RuntimeData):
                raise TypeError(f"{verb} of {data!r}")
            if not isinstance(tap, TensorAccessPattern) or tap.size != data.size:
                raise ValueError(f"a pattern over {tap!r} for a buffer of {data.size}")
            if group not in stub.groups:
                raise ValueError("a task group that is not open")
            fifo = self.fifo
            Limits.check_shim_pattern(tap.sizes, tap.strides, tap.offset, data.dtype.itemsize)
            if tap.last >= data.size:
                raise ValueError(f"{fifo.name}: element {tap.last} of a buffer of {data.size}")
            self.count += math.prod(tap.sizes) * data.dtype.itemsize
            group.tasks.append((self, wait))
            stub.moves.append((verb, fifo.name, data.number, tap))

        def _split(
            self, tile: Any, offsets: list[int], fifos: list[Any], *, join: bool
        ) -> list[Any]:
            """Links this fifo in a memory tile with those that its tiles are made of."""
            if join is not self.produces:
                raise ValueError(f"a link of the wrong end of {self.fifo.name}")
            whole = size_of(self.fifo.obj_type)
            parts = [size_of(fifo.obj_type) for fifo in fifos]
            ends = [*offsets[1:], whole]
            if (
                offsets[0] != 0
                or [end - at for at, end in zip(offsets, ends, strict=True)] != parts
            ):
                raise ValueError(f"{self.fifo.name}: parts of {parts} at {offsets} in {whole}")
            self.bind(Kind.MEMORY, tile)
            self.beyond = fifos
            for fifo in fifos:
                end = fifo.cons() if join else fifo.prod()
                end.bind(Kind.MEMORY, tile)
                end.beyond, end.is_part = [self.fifo], True
            return fifos

        def _forward(
            self, tile: Any, obj_type: Any, depth: Any, name: Any, order: dict[str, Any]
        ) -> Any:
            made = ObjectFifo(
                obj_type or self.fifo.obj_type, depth=depth or self.depth, name=name, **order
            )
            return self._split(tile, [0], [made], join=False)[0]

    class HandleNow(Handle):
        def fill(
            self,
            source: Any,
            tap: Any = None,
            wait: bool = False,
            packet: Any = None,
            offset_parameter: Any = None,
            group: Any = None,
            managed: bool = True,
            length_parameter: Any = None,
            length_unit: int | None = None,
        ) -> None:
            assert packet is offset_parameter is length_parameter is length_unit is None
            assert managed
            if not self.produces:
                raise ValueError("fill() is only valid on a producer ObjectFifoHandle")
            self._move("fill", source, tap, wait, group)

        def drain(
            self,
            dest: Any,
            tap: Any = None,
            wait: bool = False,
            packet: Any = None,
            offset_parameter: Any = None,
            group: Any = None,
            managed: bool = True,
            length_parameter: Any = None,
            length_unit: int | None = None,
        ) -> None:
            assert packet is offset_parameter is length_parameter is length_unit is None
            assert managed
            if self.produces:
                raise ValueError("drain() is only valid on a consumer ObjectFifoHandle")
            self._move("drain", dest, tap, wait, group)

        def forward(
            self,
            tile: Any = None,
            obj_type: Any = None,
            depth: int | None = None,
            name: str | None = None,
            to_stream: Any = None,
            from_stream: Any = None,
            plio: bool = False,
            repeat_count: int | None = None,
            pad_value: int = 0,
            channel: int | None = None,
        ) -> Any:
            return self._forward(tile, obj_type, depth, name, {"to_stream": to_stream})

        def split(
            self,
            offsets: list[int],
            tile: Any = None,
            depths: list[int] | None = None,
            obj_types: list[Any] | None = None,
            names: Sequence[str | None] | None = None,
            to_stream: Sequence[Any] | None = None,
            from_stream: Sequence[Any] | None = None,
            plio: bool = False,
            repeat_counts: Sequence[int | None] | None = None,
            pad_value: list[int] | None = None,
            channels: Sequence[int | None] | None = None,
        ) -> list[Any]:
            made = self._parts(offsets, depths, obj_types, names, "to_stream", to_stream)
            return self._split(tile, offsets, made, join=False)

        def join(
            self,
            offsets: list[int],
            tile: Any = None,
            depths: list[int] | None = None,
            obj_types: list[Any] | None = None,
            names: Sequence[str | None] | None = None,
            to_stream: Sequence[Any] | None = None,
            from_stream: Sequence[Any] | None = None,
            plio: bool = False,
            repeat_counts: Sequence[int | None] | None = None,
        ) -> list[Any]:
            made = self._parts(offsets, depths, obj_types, names, "to_stream", to_stream)
            return self._split(tile, offsets, made, join=True)

        def _parts(
            self,
            offsets: list[int],
            depths: Any,
            obj_types: Any,
            names: Any,
            order: str,
            orders: Any,
        ) -> list[Any]:
            assert names is not None
            count = len(offsets)
            depths = depths or [self.depth] * count
            obj_types = obj_types or [self.fifo.obj_type] * count
            rest = zip(obj_types, depths, names, orders or [None] * count, strict=True)
            return [ObjectFifo(t, depth=d, name=n, **{order: o}) for t, d, n, o in rest]

    class HandleBefore(HandleNow):
        def fill(  # type: ignore[override]
            self,
            source: Any,
            tap: Any = None,
            wait: bool = False,
            *,
            offset: int | None = None,
            sizes: Any = None,
            strides: Any = None,
            group: Any = None,
        ) -> None:
            assert offset is sizes is strides is None
            HandleNow.fill(self, source, tap, wait, group=group)

        def drain(  # type: ignore[override]
            self,
            dest: Any,
            tap: Any = None,
            wait: bool = False,
            *,
            offset: int | None = None,
            sizes: Any = None,
            strides: Any = None,
            group: Any = None,
        ) -> None:
            assert offset is sizes is strides is None
            HandleNow.drain(self, dest, tap, wait, group=group)

        def forward(  # type: ignore[override]
            self,
            tile: Any = None,
            obj_type: Any = None,
            depth: int | None = None,
            name: str | None = None,
            dims_to_stream: Any = None,
            dims_from_stream: Any = None,
            plio: bool = False,
        ) -> Any:
            return self._forward(tile, obj_type, depth, name, {"dims_to_stream": dims_to_stream})

        def split(  # type: ignore[override]
            self,
            offsets: list[int],
            tile: Any = None,
            depths: list[int] | None = None,
            obj_types: list[Any] | None = None,
            names: Any = None,
            dims_to_stream: Any = None,
            dims_from_stream: Any = None,
            plio: bool = False,
        ) -> list[Any]:
            made = self._parts(offsets, depths, obj_types, names, "dims_to_stream", dims_to_stream)
            return self._split(tile, offsets, made, join=False)

        def join(  # type: ignore[override]
            self,
            offsets: list[int],
            tile: Any = None,
            depths: list[int] | None = None,
            obj_types: list[Any] | None = None,
            names: Any = None,
            dims_to_stream: Any = None,
            dims_from_stream: Any = None,
            plio: bool = False,
        ) -> list[Any]:
            made = self._parts(offsets, depths, obj_types, names, "dims_to_stream", dims_to_stream)
            return self._split(tile, offsets, made, join=True)

    class Fifo:
        def start(self, obj_type: Any, depth: int, name: str | None) -> None:
            if get_origin(obj_type) is not np.ndarray:
                raise TypeError(f"{obj_type} is no array's type")
            if depth < 1:
                raise ValueError(f"Default ObjectFifo depth must be > 0, but got {depth}")
            if name is None or name in stub.fifos:
                raise ValueError(f"redefinition of symbol named '{name}'")
            self.obj_type, self.depth, self.name = obj_type, depth, name
            self.producer: Any = None
            self.consumers: list[Any] = []
            stub.fifos[name] = self

        def keep_order(self, order: Sequence[tuple[int, int]]) -> None:
            Limits.check_memory_pattern(order, dtype_of(self.obj_type).itemsize)
            stub.orders[self.name] = [(int(n), int(step)) for n, step in order]

        def prod(
            self, depth: int | None = None, channel: int | None = None, tile: Any = None
        ) -> Any:
            if self.producer is None:
                self.producer = handle(self, True, depth, tile)
            return self.producer

    class FifoNow(Fifo):
        def __init__(
            self,
            obj_type: Any,
            *,
            depth: int = 2,
            name: str | None = None,
            to_stream: Any = None,
            from_stream_per_cons: Any = None,
            plio: bool = False,
            pad_value: int = 0,
            disable_synchronization: bool = False,
            repeat_count: int | None = None,
            delegate_tile: Any = None,
            via_DMA: bool = False,  # noqa: N803 (the API's name)
            init_values: Any = None,
            consumer_obj_type: Any = None,
            aie_stream: Any = None,
            packet: bool = False,
            packet_id: int | None = None,
        ) -> None:
            self.start(obj_type, depth, name)
            if to_stream is not None:
                if not isinstance(to_stream, TensorAccessPattern):
                    raise TypeError("to_stream takes a TensorAccessPattern")
                if to_stream.offset or to_stream.size != size_of(obj_type):
                    raise ValueError(f"{name} walks a tensor of {to_stream.size} elements")
                self.keep_order(list(zip(to_stream.sizes, to_stream.strides, strict=True)))

        def cons(
            self,
            depth: int | None = None,
            from_stream: Any = None,
            channel: int | None = None,
            tile: Any = None,
        ) -> Any:
            self.consumers.append(handle(self, False, depth, tile))
            return self.consumers[-1]

    class FifoBefore(Fifo):
        def __init__(
            self,
            obj_type: Any,
            depth: int = 2,
            name: str | None = None,
            dims_to_stream: Any = None,
            dims_from_stream_per_cons: Any = None,
            plio: bool = False,
            pad_dimensions: Any = None,
            disable_synchronization: bool = False,
        ) -> None:
            self.start(obj_type, depth, name)
            if dims_to_stream is not None:
                self.keep_order(dims_to_stream)

        def cons(
            self,
            depth: int | None = None,
            dims_from_stream: Any = None,
            *,
            tile: Any = None,
            channel: int | None = None,
        ) -> Any:
            self.consumers.append(handle(self, False, depth, tile))
            return self.consumers[-1]

    handle: Any = HandleNow if by_pattern else HandleBefore
    ObjectFifo: Any = FifoNow if by_pattern else FifoBefore  # noqa: N806 (the API's name)

    class Buffer:
        def __init__(
            self,
            type: Any = None,
            initial_value: Any = None,
            name: str | None = None,
            tile: Any = None,
            use_write_rtp: bool = False,
        ) -> None:
            assert name is not None
            self.type, self.name = type, name

    class Kernel:
        def __init__(
            self,
            name: str,
            object_file_name: str,
            arg_types: list[Any] | None = None,
            *,
            link_with_mode: str | None = None,
            stack_size_override: int | None = None,
        ) -> None:
            self.name, self.types = name, arg_types or []
            declared = (object_file_name, str(self.types))
            if stub.kernels.setdefault(name, declared) != declared:
                raise ValueError(f"redefinition of symbol named '{name}' with other types")

        def __call__(self, *arguments: Any) -> None:
            if len(arguments) != len(self.types):
                raise ValueError(
                    f"Kernel '{self.name}' expects {len(self.types)} argument(s), but "
                    f"{len(arguments)} were provided."
                )
            for given, wanted in zip(arguments, self.types, strict=True):
                if isinstance(given, Element | Buffer):
                    assert str(given.type) == str(wanted), (self.name, given.type, wanted)
                elif isinstance(given, Value):
                    assert (given.type, wanted) == ("i32", np.int32), (self.name, given, wanted)
                else:
                    assert type(given) in (int, float), (self.name, given)
                    assert wanted is (np.int32 if type(given) is int else np.float32)
            stub.calls.append((self.name, stub.at, arguments))

    class Worker:
        def __init__(
            self,
            core_fn: Any,
            fn_args: list[Any] | None = None,
            tile: Any = None,
            while_true: bool = True,
            stack_size: int | None = None,
            program_memory_reserved: int | None = None,
            allocation_scheme: str | None = None,
            trace: int | None = None,
            trace_events: Any = None,
            dynamic_objfifo_lowering: bool | None = None,
        ) -> None:
            self.core_fn, self.fn_args, self.tile = core_fn, fn_args or [], tile
            self.stack_size = 1024 if stack_size is None else stack_size
            for argument in self.fn_args:
                if isinstance(argument, Fifo):
                    raise ValueError("Cannot give an ObjectFifo directly to a worker")
                if isinstance(argument, Handle):
                    argument.bind(Kind.CORE, tile)

    class TaskGroup:
        def __init__(self) -> None:
            if stub.groups is None:
                raise RuntimeError("a task group outside of a sequence")
            self.tasks: list[tuple[Any, bool]] = []
            stub.groups.append(self)

        def finish(self) -> None:
            Limits.check_group(
                (end.fifo.name, end.endpoint[1].col, end.produces) for end, _ in self.tasks
            )
            if self.tasks and not any(wait for _, wait in self.tasks):
                raise ValueError("descriptors are freed that nobody waits for")
            assert stub.groups is not None
            stub.groups.remove(self)

    class Runtime:
        def start(self, seq_fn: Any, fn_args: Any) -> None:
            self.seq_fn, self.fn_args = seq_fn, list(fn_args or [])
            for argument in self.fn_args:
                if isinstance(argument, Handle):
                    argument.bind(Kind.SHIM, argument.shim_tile)

        def resolve(self) -> None:
            given: list[Any] = []
            for argument in self.fn_args:
                tensor = get_origin(argument) is np.ndarray
                given.append(RuntimeData(len(given), argument) if tensor else argument)
            stub.groups = []
            self.seq_fn(*given)
            if stub.groups:
                raise RuntimeError("Failed to close task groups")
            stub.groups = None

    class RuntimeNow(Runtime):
        def __init__(
            self,
            seq_fn: Any,
            fn_args: Any = None,
            *,
            name: str | None = None,
            strict_task_groups: bool = True,
            implicit_configure: bool = True,
        ) -> None:
            self.start(seq_fn, fn_args)

    class RuntimeBefore(Runtime):
        def __init__(
            self, seq_fn: Any, fn_args: Any = None, *, strict_task_groups: bool = True
        ) -> None:
            self.start(seq_fn, fn_args)

    class Program:
        def __init__(self, device: Any, rt: Any, workers: list[Any] | None = None) -> None:
            self.device, self.runtime, self.workers = device, rt, workers or []

        def resolve_program(self) -> str:
            Array(COLUMNS[self.device], stub.fifos.values(), self.workers, bytes_of).check()
            for worker in self.workers:
                stub.at = (worker.tile.col, worker.tile.row)
                worker.core_fn(*worker.fn_args)
            self.runtime.resolve()
            self._check_flow()
            return str(self.device)

        def _check_flow(self) -> None:
            """As many tiles leave every fifo as enter it, and none is held at the end."""
            ends = [e for f in stub.fifos.values() for e in (f.producer, *f.consumers)]
            for end in ends:
                if end.held:
                    raise ValueError(f"{end.held} tiles of {end.fifo.name} are never given back")
            for fifo in stub.fifos.values():
                counts = {tiles_of(end) for end in (fifo.producer, *fifo.consumers)}
                if len(counts) > 1:
                    raise ValueError(f"{fifo.name}: {sorted(counts)} tiles at its ends")

    def tiles_of(end: Any) -> int:
        kind = end.endpoint[0]
        if kind is Kind.CORE:
            return int(end.count)
        if kind is Kind.SHIM:
            # The bytes: a buffer's elements need not be those of the tiles that it fills.
            whole, rest = divmod(end.count, bytes_of(end.fifo.obj_type))
            if rest:
                raise ValueError(f"{end.fifo.name}: {rest} bytes are a part of a tile")
            return int(whole)
        far = [fifo.producer if end.produces else fifo.consumers[0] for fifo in end.beyond]
        counts = {tiles_of(other) for other in far}
        if len(counts) > 1:
            raise ValueError(f"{end.fifo.name}: {sorted(counts)} tiles of its parts")
        return counts.pop()

    return {
        "Buffer": Buffer,
        "Kernel": Kernel,
        "ObjectFifo": ObjectFifo,
        "Program": Program,
        "Runtime": RuntimeNow if by_pattern else RuntimeBefore,
        "TaskGroup": TaskGroup,
        "Worker": Worker,
    }


@contextlib.contextmanager
def installed(release: str) -> Iterator[Stub]:
    """A release, for as long as the block runs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Stub(release).install(monkeypatch)
