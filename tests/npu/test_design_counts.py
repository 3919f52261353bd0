"""How many descriptors, phases and cores the designs of real models' shapes take."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import iron_stub
import pytest
from design_cases import design_of, numbers, ulps, whole_design

from onnx_iron.kernels.designs import Design, Refusal, Target
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.interpreter import evaluate
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.kernels.designs.schedule import Descriptor, schedule
from onnx_iron.kernels.designs.target import shim_pattern
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.gemm import GEMM
from onnx_iron.operators.gemv import GEMV

# mlir-aie's words for a descriptor: 12 that write it, 12 that put its address in, 6 that queue it,
# 4 that await it.
INSTRUCTION_BYTES = 4 * (12 + 12 + 6 + 4)

# The products of one row in SmolLM2-135M, LFM2-350M and Llama-3.2-1B: (N, K).
PRODUCTS = [(576, 576), (192, 576), (1536, 576), (576, 1536), (49152, 576)]
PRODUCTS += [(3072, 1024), (4608, 1024), (1024, 4608), (65536, 1024)]
PRODUCTS += [(512, 2048), (8192, 2048), (2048, 8192), (128256, 2048)]


def phases(design: Design) -> list[tuple[Descriptor, ...]]:
    return schedule(design, design.possible_values())


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize(("n", "k"), PRODUCTS)
def test_a_gemv_is_one_walk_over_whole_rows_for_each_column(n: int, k: int, device: Target) -> None:
    design = design_of(GEMV(), {"weight": (n, k), "x": (k,)}, device)
    (phase,) = phases(design)
    assert len(phase) * INSTRUCTION_BYTES < 20_000
    assert len(design.columns) == device.columns
    walks = Counter((d.stream, d.column) for d in phase)
    for column in range(device.columns):
        assert walks["weight", column] <= 2  # a last block may start earlier than its turn
        assert walks["y", column] <= 2
    if n % (64 * device.columns) == 0:
        assert set(walks.values()) == {1}
    assert all(len(shim_pattern(d.sizes, d.strides, 2)) == 1 for d in phase)


def test_a_gemv_of_an_uneven_number_of_rows_keeps_to_few_walks() -> None:
    for n in (2, 14, 998, 1000, 49154):
        design = design_of(GEMV(), {"weight": (n, 576), "x": (576,)}, Target.NPU2)
        (phase,) = phases(design)
        assert len(phase) <= 1 + 2 * 2 * len(design.columns)


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize(("m", "k", "n"), [(2048, 2048, 2048), (256, 2048, 8192), (64, 576, 1536)])
def test_a_gemm_takes_every_core_and_reads_a_tile_once_for_a_row_or_a_column(
    m: int, k: int, n: int, device: Target
) -> None:
    design = design_of(GEMM(b_col_maj=True), {"a": (m, k), "b": (n, k)}, device)
    assert len(design.columns) * design.rows == {Target.NPU1: 16, Target.NPU2: 32}[device]
    moved: Counter[str] = Counter()
    for phase in phases(design):
        for d in phase:
            moved[d.stream] += math.prod(d.sizes)
    a, b, y = design.streams
    # Of a, once for each block of columns that a column of cores makes; of b for each of rows.
    passes, groups, _ = design.columns[0]
    assert moved == {"a": passes * m * k, "b": groups * n * k, "y": m * n}
    assert a.broadcast
    assert b.shared
    if m >= 256:
        assert y.size == 64 * 64


@pytest.mark.parametrize("device", Target)
@pytest.mark.parametrize(("heads", "groups"), [(9, 3), (16, 8), (32, 8), (10, 5), (14, 2)])
def test_attention_of_a_chunk_takes_all_columns_and_reads_a_heads_cache_once(
    heads: int, groups: int, device: Target
) -> None:
    length, dim, entries = 8 * device.columns, 64, 1024
    shapes = {
        "query": (length, heads, dim),
        "key": (entries, groups, dim),
        "value": (entries, groups, dim),
        "position": (),
    }
    design = design_of(Attention(is_causal=True), shapes, device)
    assert len(design.columns) == device.columns
    assert design.rows == {3: 3, 8: 4, 5: 3, 2: 2}[groups]
    (passes, blocks, _) = design.columns[0]
    heads_read = passes * design.rows
    assert heads_read - groups < design.rows, "a head is read again where the last ones are fewer"
    moved: Counter[str] = Counter()
    for phase in phases(design):
        for d in phase:
            moved[d.buffer] += math.prod(d.sizes)
    assert moved["key"] == moved["value"] == blocks * heads_read * entries * dim
    assert moved["query"] == moved["y"] == length * heads_read * heads // groups * dim


@pytest.mark.parametrize("release", iron_stub.RELEASES)
def test_cores_of_a_column_get_their_parts_of_a_tile_and_give_them_joined(release: str) -> None:
    design = whole_design()
    (call,) = design.calls
    x, y = (dataclasses.replace(stream, size=stream.size // 4) for stream in design.streams)
    parted = dataclasses.replace(
        design,
        rows=4,
        streams=(x, y),
        calls=(dataclasses.replace(call, arguments=("x", "y", x.size)),),
    )
    assert checked(parted) == parted
    inputs = {"x": numbers(1, 8, 2048)}
    assert ulps(evaluate(parted, inputs)["y"], evaluate(design, inputs)["y"]) == 0
    with iron_stub.installed(release) as iron:
        lower(parted, {})
    assert {at for _, at, _ in iron.calls} == {(c, r) for c in range(8) for r in range(2, 6)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": 5}, "5 cores in a column, which has 4"),
        ({"rows": 4}, "4096 bytes fill a tile x of 16384 bytes"),
        ({"rows": 4, "told": True}, "4 cores in a column are told their numbers"),
    ],
)
def test_rows_of_cores_that_are_not_there_are_refused(
    change: Mapping[str, Any], reason: str
) -> None:
    refusal = checked(dataclasses.replace(whole_design(), **change))
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason
