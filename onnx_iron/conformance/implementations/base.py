"""What an implementation is: something that runs a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from onnx_iron.conformance.case import Call, Case
from onnx_iron.conformance.expected import Results as Expected
from onnx_iron.dtypes import Array
from onnx_iron.operators.declaration import Tolerance

# For each call the outputs, and the states as ``present.<name>``.
Results: TypeAlias = Sequence[Mapping[str, Array]]


class Declined(Exception):  # noqa: N818 - an answer that a report shows, not a fault
    """An implementation does not take a case, and why."""


class Inapplicable(Exception):  # noqa: N818 - an answer as well
    """A case has nothing in it that an implementation is about, and what that is."""


@dataclass(frozen=True)
class Difference:
    """What an implementation is known to do otherwise, and why; a report shows it.

    Attributes:
        reason: why, in words for the report.
        subject: of the cases that it applies to; empty for all.
        kinds: of the numbers that it applies to; empty for all.
        tolerance: what is allowed instead of the case's tolerance.
        flushes: numbers below the least normal one are zeros, as operands and as results.
        expected: what the calls of a case must give instead. With none of the three, the results
            of such calls are not judged.
    """

    reason: str
    subject: str = ""
    kinds: tuple[str, ...] = ()
    tolerance: Tolerance | None = None
    flushes: bool = False
    expected: Callable[[Case], Sequence[Expected]] | None = None

    def applies(self, case: Case, call: Call) -> bool:
        """Whether it does to a call of a case."""
        return self.subject in ("", case.subject) and (not self.kinds or call.kind in self.kinds)


class Implementation(Protocol):
    """One way to run a case; a column of the report's matrix.

    To hold a runtime of your own to the cases, write a class with these two members and give it to
    :func:`onnx_iron.conformance.run`. It may have a third, ``differences``, a sequence of
    :class:`Difference`.
    """

    @property
    def name(self) -> str:
        """What the report calls it."""

    def run(self, case: Case) -> Results:
        """Run a case's calls in order.

        A state begins with zeros, and is kept from call to call.

        Raises:
            Declined: the implementation does not take the case.
            Inapplicable: it has nothing that the implementation is about.
        """
