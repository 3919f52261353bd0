"""The order of a design's transfers, and what mlir-aie is told."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
from collections.abc import Mapping
from typing import Any

import iron_stub
import numpy as np
import pytest
from design_cases import (
    DESIGNED,
    LOWERED,
    design_of,
    dtype_of,
    lowered,
    walked,
    whole_design,
)

from onnx_iron.dtypes import Array
from onnx_iron.kernels.aie.build import kernel_source
from onnx_iron.kernels.designs import Refusal, Target, design_for
from onnx_iron.kernels.designs.design import (
    Direction,
    Index,
)
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.operators import OPERATORS
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
            # What all columns get is read by the column of the number of the row that gets it.
            row = column if stream.broadcast else 0
            if row >= (1 if stream.shared else design.rows):
                assert not moves
                continue
            for buffer in {t.buffer for t in stream.transfers}:
                wanted = [
                    walked(t.offset(column, indices, values, row), t.sizes, t.strides)
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
        specs = [
            (shapes[name], dtype_of(kind)) if name in shapes else None
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
    assert (a.sizes, a.strides) == ((64, 16, 64), (64, 4096, 1))


FIRST_CORE = 2  # the array's row of the lowest cores


@lowered
@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize("release", iron_stub.RELEASES)
def test_the_lowering_says_to_mlir_aie_what_the_design_says(
    op: Any,
    shapes: Mapping[str, tuple[int, ...]],
    values: dict[str, int],
    device: Target,
    release: str,
) -> None:
    design = design_of(op, shapes, device)
    with iron_stub.installed(release) as iron:
        assert lower(design, values) == device

    # Each move is the schedule's, at the end of a fifo of its stream.
    descriptors = [d for phase in schedule(design, values) for d in phase]
    assert len(iron.moves) == len(descriptors)
    for (verb, fifo, buffer, tap), d in zip(iron.moves, descriptors, strict=True):
        stream = next(s for s in design.streams if s.name == d.stream)
        assert verb == ("fill" if stream.direction is Direction.IN else "drain")
        assert fifo.startswith(f"{d.stream}_")
        assert design.buffers[buffer].name == d.buffer
        places = walked(tap.offset, tuple(tap.sizes), tuple(tap.strides))
        assert (places == walked(d.offset, d.sizes, d.strides)).all()

    # Each core calls its kernels as often as the loops say, with the numbers of its loops.
    wanted = []
    cores = itertools.product(enumerate(design.columns), range(design.rows))
    for (column, trips), row in cores:
        for call in design.calls:
            for indices in itertools.product(*(range(n) for n in trips[: call.level])):
                numbers = tuple(
                    a.at(column, indices, {}, row) if isinstance(a, Index) else a
                    for a in call.arguments
                    if not isinstance(a, str)
                )
                wanted.append((call.kernel, (column, FIRST_CORE + row), numbers))
    found = [
        (name, at, tuple(a for a in arguments if isinstance(a, int | float)))
        for name, at, arguments in iron.calls
    ]
    assert sorted(found) == sorted(wanted)

    # What is arranged is, on its way through a memory tile.
    arranged = [s for s in design.streams if s.arrange]
    for stream in arranged:
        orders = [order for name, order in iron.orders.items() if name.startswith(stream.name)]
        assert orders
        assert all(order == list(stream.arrange) for order in orders)


def test_without_mlir_aie_the_lowering_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aie", None)
    with pytest.raises(
        ImportError, match=r"are built with mlir-aie 1\.4\.0 to 1\.4\.5, which is not"
    ):
        lower(whole_design(), {})


def test_a_release_with_another_api_is_refused_with_the_ones_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    iron_stub.Stub("1.4.0").install(monkeypatch)
    for part in (lambda obj_type, depth, order: None, lambda rt: None):
        name = "ObjectFifo" if "order" in inspect.signature(part).parameters else "Runtime"
        with monkeypatch.context() as changed:
            changed.setattr(sys.modules["aie.iron"], name, part)
            with pytest.raises(ImportError, match=r"another IRON API than 1\.4\.0 to 1\.4\.5, .*"):
                lower(whole_design(), {})


def test_kernels_are_found_in_their_files() -> None:
    assert kernel_source("gemv_finish_bf16").name == "gemv.cc"
    with pytest.raises(KeyError):
        kernel_source("sigh_bf16")
