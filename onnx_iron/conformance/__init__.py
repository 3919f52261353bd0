"""The conformance suite: any implementation held to the same cases.

Example:
    >>> from onnx_iron import conformance
    >>> cases = [c for c in conformance.cases() if c.subject == "SiLU"]
    >>> outcomes = conformance.run(cases, [conformance.NumpyReference()])
    >>> {outcome.status.value for outcome in outcomes}
    {'passed'}
"""

from collections.abc import Iterator

from onnx_iron.conformance.case import Call, Case
from onnx_iron.conformance.graph_cases import graph_cases
from onnx_iron.conformance.implementations.base import (
    Declined,
    Difference,
    Implementation,
    Inapplicable,
)
from onnx_iron.conformance.implementations.numpy_reference import NumpyReference
from onnx_iron.conformance.operator_cases import operator_cases
from onnx_iron.conformance.runner import Outcome, Status, judge, run
from onnx_iron.operators.declaration import Tolerance


def cases() -> Iterator[Case]:
    """Every case: of single operators by their declarations, then of whole graphs."""
    yield from operator_cases()
    yield from graph_cases()


__all__ = [
    "Call",
    "Case",
    "Declined",
    "Difference",
    "Implementation",
    "Inapplicable",
    "NumpyReference",
    "Outcome",
    "Status",
    "Tolerance",
    "cases",
    "judge",
    "run",
]
