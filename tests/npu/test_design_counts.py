"""How many descriptors, phases and cores the designs of real models' shapes take."""

from __future__ import annotations

from collections import Counter

import pytest
from design_cases import design_of

from onnx_iron.kernels.designs import Design, Target
from onnx_iron.kernels.designs.schedule import Descriptor, schedule
from onnx_iron.kernels.designs.target import shim_pattern
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
