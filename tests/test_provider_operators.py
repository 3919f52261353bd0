"""Every operator's declared cases on the execution provider."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime as ort
import pytest
from networks import Exported
from provider_models import EP, iron
from test_operators import check, float32_feeds, operands, traced

import onnx_iron
from onnx_iron.dtypes import FLOATS
from onnx_iron.operators import OPERATORS

CASES = [
    pytest.param(op, case, dtype, id=f"{name}-{number}-{dtype.name}")
    for name, op in sorted(OPERATORS.items())
    for number, case in enumerate(op.cases)
    for dtype in FLOATS
]


def opened(model: onnx.ModelProto) -> ort.InferenceSession:
    return iron(model.SerializeToString())


@pytest.mark.parametrize(("op", "case", "dtype"), CASES)
def test_a_declared_case_runs_whole_on_the_provider(op: Any, case: Any, dtype: Any) -> None:
    arrays = operands(op, case, dtype)
    made, trace, expected = traced(op, case, arrays)
    model = Exported(trace, opened)
    assert {row.provider for row in onnx_iron.placement(model.session).rows} <= {EP}
    results = model(**float32_feeds(arrays, case)).values()
    for result, wanted in zip(results, expected, strict=True):
        check(made, result.astype(wanted.dtype), wanted)
