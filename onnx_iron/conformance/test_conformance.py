"""The cases as tests, for ``pytest --pyargs onnx_iron.conformance``."""

from __future__ import annotations

import pytest

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.base import Implementation
from onnx_iron.conformance.runner import Status, judge


def test_the_implementation_computes_what_the_model_means(
    case: Case, implementation: Implementation
) -> None:
    outcome = judge(case, implementation)
    if outcome.status in (Status.DECLINED, Status.INAPPLICABLE):
        pytest.skip(outcome.detail)
    assert outcome.status is Status.PASSED, outcome.detail
