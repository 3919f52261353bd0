"""What an implementation is: something that runs a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from onnx_iron.conformance.case import Case
from onnx_iron.dtypes import Array

# For each call the outputs, and the states as ``present.<name>``.
Results: TypeAlias = Sequence[Mapping[str, Array]]


class Declined(Exception):  # noqa: N818 - an answer that a report shows, not a fault
    """An implementation does not take a case, and why."""


class Implementation(Protocol):
    """One way to run a case; a column of the report's matrix.

    To hold a runtime of your own to the cases, write a class with these two members and give it to
    :func:`onnx_iron.conformance.run`.
    """

    name: str

    def run(self, case: Case) -> Results:
        """Run a case's calls in order.

        A state begins with zeros; it is kept from call to call where ``case.keeps_states``.

        Raises:
            Declined: the case is not for this implementation.
        """
