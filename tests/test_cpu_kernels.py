"""What holds for every CPU kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cpu_kernels import (
    CASES,
    Case,
    assert_same_bits,
)

from onnx_iron.kernels import kernel_names

EVERY = pytest.mark.parametrize("case", CASES, ids=str)


def test_every_kernel_has_a_case() -> None:
    assert {case.op for case in CASES} == set(kernel_names())


@EVERY
def test_the_number_of_threads_does_not_change_a_bit(case: Case) -> None:
    for alone, shared in zip(case.run(), case.run(threads=3), strict=True):
        assert_same_bits(shared, alone)


@EVERY
def test_every_element_of_the_outputs_is_written(case: Case) -> None:
    def filled(byte: int) -> list[np.ndarray]:
        outputs = []
        for shape, dtype in case.outputs:
            size = math.prod(shape) * dtype.itemsize
            outputs.append(np.full(size, byte, np.uint8).view(dtype).reshape(shape))
        return case.run(outputs)

    for one, other in zip(filled(0xFF), filled(0), strict=True):
        assert one.tobytes() == other.tobytes()


@EVERY
def test_no_input_is_written_to(case: Case) -> None:
    before = [None if x is None else x.copy() for x in case.inputs]
    case.run()
    for now, then in zip(case.inputs, before, strict=True):
        if now is not None and then is not None:
            assert now.tobytes() == then.tobytes()
