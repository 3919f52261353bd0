"""The order of a design's transfers, and what mlir-aie is told."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from design_cases import (
    DESIGNED,
    LOWERED,
    design_of,
    lowered,
    walked,
    whole_design,
)

from onnx_iron.dtypes import BFLOAT16, INT32, Array
from onnx_iron.kernels.aie.build import kernel_source
from onnx_iron.kernels.designs import Refusal, Target, design_for
from onnx_iron.kernels.designs.design import (
    Direction,
    Index,
)
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.operators import OPERATORS
from onnx_iron.operators.base import Kind
from onnx_iron.operators.gemm import GEMM


@lowered
@pytest.mark.parametrize("device", Target)
def test_the_schedule_moves_each_streams_tiles_in_order(
    op: Any, shapes: Mapping[str, tuple[int, ...]], values: dict[str, int], device: Target
) -> None:
    design = design_of(op, shapes, device)
    scheduled: dict[tuple[int, str], list[tuple[str, Array]]] = {}
    for phase in schedule(design, values):
        queued: dict[tuple[int, str], int] = {}
        for d in phase:
            key = d.column, d.stream
            queued[key] = queued.get(key, 0) + 1
            moved = walked(d.offset, d.sizes, d.strides)
            scheduled.setdefault(key, []).append((d.buffer, moved))
        assert max(queued.values()) <= 4
    for column, trips in enumerate(design.columns):
        for stream in design.streams:
            moves = scheduled.get((column, stream.name), [])
            if stream.broadcast and column:
                assert not moves
                continue
            for buffer in {t.buffer for t in stream.transfers}:
                wanted = [
                    walked(t.offset(column, indices, values), t.sizes, t.strides)
                    for indices in itertools.product(*(range(n) for n in trips[: stream.level]))
                    for t in stream.transfers
                    if t.buffer == buffer
                ]
                found = [places for name, places in moves if name == buffer]
                assert (np.concatenate(found) == np.concatenate(wanted)).all()


CASES = [
    pytest.param(op(**case.attributes), case, id=f"{name}: {case}")
    for name, op in sorted(OPERATORS.items())
    for case in op.cases
    if name in DESIGNED
]


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize(("op", "case"), CASES)
def test_addresses_made_ahead_of_calls_are_inside_of_their_buffers(
    op: Any, case: Any, device: Target
) -> None:
    """Also where a case is larger: the same ranks and values, each axis doubled until it fits."""
    for factor in (1, 2, 4, 8, 16):
        kinds = {d.name: d.kind for d in op.inputs}
        shapes = {
            name: tuple(factor * n if n > 1 else n for n in shape)
            for name, shape in case.shapes.items()
        } | dict.fromkeys(case.values, ())
        integers = (Kind.SCALAR, Kind.INDEX)
        specs = [
            (shapes[name], np.dtype(INT32 if kind in integers else BFLOAT16))
            if name in shapes
            else None
            for name, kind in kinds.items()
        ]
        try:
            design = design_for(op, specs, device)
        except ValueError:
            continue  # taps and states that no longer fit each other
        if isinstance(design, Refusal):
            continue
        moves = [d for phase in schedule(design, design.possible_values()) for d in phase]
        assert moves
        for d in moves:
            reach = sum((n - 1) * step for n, step in zip(d.sizes, d.strides, strict=True))
            assert 0 <= d.offset <= d.offset + reach < design.buffer(d.buffer).size


def test_values_change_offsets_of_the_schedule_only() -> None:
    design = design_of(*LOWERED[-2][:2], Target.NPU2)
    one, other = (schedule(design, v) for v in ({"start": 0, "rows": 4}, {"start": 7, "rows": 2}))
    moved = [
        (a.offset, b.offset)
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first, second, strict=True)
        if dataclasses.replace(a, offset=b.offset) == b
    ]
    assert len(moved) == sum(map(len, one))
    assert [pair for pair in moved if pair[0] != pair[1]] == [(0, 56), (8, 64), (16, 64), (24, 64)]


def test_rows_that_happen_to_be_neighbours_do_not_share_a_descriptor() -> None:
    shapes = {"weight": (10, 8), "ids": (3,)}
    design = design_of(OPERATORS["Embedding"](), shapes, Target.NPU2)
    schedules = [
        schedule(design, {f"ids[{i}]": row for i, row in enumerate(rows)})
        for rows in ((0, 1, 2), (5, 0, 9))
    ]
    for made, rows in zip(schedules, ((0, 8, 16), (40, 0, 72)), strict=True):
        taken = [d.offset for phase in made for d in phase if d.buffer == "weight"]
        assert taken == list(rows)


def test_neighbouring_tiles_share_a_descriptor() -> None:
    design = design_of(GEMM(b_col_maj=True), {"a": (64, 4096), "b": (512, 4096)}, Target.NPU2)
    (phase,) = schedule(design, {})
    a = next(d for d in phase if d.stream == "a")
    assert (a.sizes, a.strides) == ((64, 64, 64), (64, 4096, 1))


class Fake:
    """mlir-aie's names as its 1.4.0 reference gives them, recording what is done with them.

    A core's program and the sequence run when the program is resolved, loops and numbers in plain
    Python.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int, tuple[Any, ...]]] = []
        self.moves: list[tuple[str, str, str, dict[str, Any]]] = []
        self.held: dict[str, int] = {}
        self.fifos: dict[str, Any] = {}
        self.column = -1
        fake = self

        class Handle:
            def __init__(self, fifo: ObjectFifo, produces: bool) -> None:
                self.fifo, self.produces = fifo, produces

            def forward(
                self,
                *,
                obj_type: Any = None,
                depth: int | None = None,
                name: str | None = None,
                dims_to_stream: list[tuple[int, int]] | None = None,
            ) -> ObjectFifo:
                assert not self.produces
                assert math.prod(obj_type.__args__[0]) == math.prod(self.fifo.type.__args__[0])
                return ObjectFifo(obj_type, depth=depth, name=name, dims_to_stream=dims_to_stream)

            def acquire(self, number: int) -> str:
                fake.held[self.fifo.name] = fake.held.get(self.fifo.name, 0) + number
                assert fake.held[self.fifo.name] <= self.fifo.depth
                return self.fifo.name

            def release(self, number: int) -> None:
                fake.held[self.fifo.name] -= number
                assert fake.held[self.fifo.name] >= 0

            def fill(self, source: str, **how: Any) -> None:
                assert self.produces
                self.move("fill", source, how)

            def drain(self, destination: str, **how: Any) -> None:
                assert not self.produces
                self.move("drain", destination, how)

            def move(self, verb: str, buffer: str, how: dict[str, Any]) -> None:
                assert set(how) == {"offset", "sizes", "strides", "wait", "group"}
                assert len(how["sizes"]) == len(how["strides"]) == 4
                assert not how["group"].finished
                fake.moves.append((verb, self.fifo.name, buffer, how))

        class ObjectFifo:
            def __init__(
                self,
                obj_type: Any,
                depth: int | None = 2,
                name: str | None = None,
                dims_to_stream: list[tuple[int, int]] | None = None,
            ) -> None:
                assert name is not None
                assert name not in fake.fifos
                self.type, self.depth, self.name, self.dims = obj_type, depth, name, dims_to_stream
                fake.fifos[name] = self

            def prod(self) -> Handle:
                return Handle(self, True)

            def cons(self) -> Handle:
                return Handle(self, False)

        class Kernel:
            def __init__(self, name: str, bin_name: str, arg_types: list[Any]) -> None:
                self.name, self.bin_name, self.types = name, bin_name, arg_types

            def __call__(self, *arguments: Any) -> None:
                assert len(arguments) == len(self.types)
                fake.calls.append((self.name, fake.column, arguments))

        class Buffer:
            def __init__(self, type: Any, name: str) -> None:
                self.name = name

        class Worker:
            def __init__(self, core_fn: Any, fn_args: list[Any], stack_size: int) -> None:
                assert len({k.bin_name for k in fn_args if isinstance(k, Kernel)}) == 1
                self.run = lambda: core_fn(*fn_args)

        class TaskGroup:
            finished = False

            def finish(self) -> None:
                self.finished = True

        class Runtime:
            def __init__(self, sequence: Any, fn_args: list[Any]) -> None:
                # Types declare the buffers; what else is given is passed on.
                given = [x if isinstance(x, Handle) else f"b{i}" for i, x in enumerate(fn_args)]
                self.run = lambda: sequence(*given)

        class Program:
            def __init__(self, device: str, rt: Runtime, workers: list[Worker]) -> None:
                self.device, self.rt, self.workers = device, rt, workers

            def resolve_program(self) -> str:
                for fake.column, worker in enumerate(self.workers):
                    worker.run()
                self.rt.run()
                assert not any(fake.held.values())
                return self.device

        iron = types.ModuleType("aie.iron")
        for part in (ObjectFifo, Kernel, Buffer, Worker, TaskGroup, Runtime, Program):
            setattr(iron, part.__name__, part)
        device = types.ModuleType("aie.iron.device")
        device.NPU1, device.NPU2 = (lambda: "NPU1"), (lambda: "NPU2")  # type: ignore[attr-defined]
        flow = types.ModuleType("aie.iron.controlflow")
        flow.range_ = range  # type: ignore[attr-defined]
        arith = types.ModuleType("aie.dialects.arith")
        for name, function in {
            "constant": lambda _, number: number,
            "index_cast": lambda _, index: index,
            "addi": lambda a, b: a + b,
            "muli": lambda a, b: a * b,
            "minsi": min,
            "maxsi": max,
        }.items():
            setattr(arith, name, function)
        mlir_types = types.ModuleType("aie.extras.types")
        mlir_types.i32 = lambda: "i32"  # type: ignore[attr-defined]
        for module in (iron, device, flow, arith, mlir_types):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        for package in ("aie", "aie.dialects", "aie.extras"):
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))


@lowered
@pytest.mark.parametrize("device", Target)
def test_the_lowering_says_to_mlir_aie_what_the_design_says(
    op: Any,
    shapes: Mapping[str, tuple[int, ...]],
    values: dict[str, int],
    device: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design = design_of(op, shapes, device)
    fake = Fake(monkeypatch)
    assert lower(design, values) == device.name

    # Each move is the schedule's, at the end of a fifo of its stream.
    descriptors = [d for phase in schedule(design, values) for d in phase]
    assert len(fake.moves) == len(descriptors)
    for (verb, fifo, buffer, how), d in zip(fake.moves, descriptors, strict=True):
        stream = next(s for s in design.streams if s.name == d.stream)
        assert verb == ("fill" if stream.direction is Direction.IN else "drain")
        assert fifo.startswith(f"{d.stream}_")
        assert design.buffers[int(buffer[1:])].name == d.buffer
        places = walked(how["offset"], tuple(how["sizes"]), tuple(how["strides"]))
        assert (places == walked(d.offset, d.sizes, d.strides)).all()

    # Each core calls its kernels as often as the loops say, with the numbers of its loops.
    wanted = []
    for column, trips in enumerate(design.columns):
        for call in design.calls:
            for indices in itertools.product(*(range(n) for n in trips[: call.level])):
                numbers = tuple(
                    a.at(column, indices, {}) if isinstance(a, Index) else a
                    for a in call.arguments
                    if not isinstance(a, str)
                )
                wanted.append((call.kernel, column, numbers))
    found = [
        (name, column, tuple(a for a in arguments if isinstance(a, int | float)))
        for name, column, arguments in fake.calls
    ]
    assert sorted(found) == sorted(wanted)

    # What is arranged is, on its way through a memory tile.
    arranged = [s for s in design.streams if s.arrange]
    for stream in arranged:
        dims = [f.dims for n, f in fake.fifos.items() if n.startswith(stream.name) and f.dims]
        assert dims
        assert all(d == list(stream.arrange) for d in dims)


def test_without_mlir_aie_the_lowering_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aie", None)
    with pytest.raises(ImportError, match=r"designs are built with mlir-aie 1\.4\.0, which is not"):
        lower(whole_design(), {})


def test_kernels_are_found_in_their_files() -> None:
    assert kernel_source("gemv_finish_bf16").name == "gemv.cc"
    with pytest.raises(KeyError):
        kernel_source("sigh_bf16")
