"""Runs cases on implementations and judges what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from onnx_iron.conformance.case import Case, Tolerance
from onnx_iron.conformance.expected import Expected
from onnx_iron.conformance.implementations.base import Declined, Implementation, Results
from onnx_iron.conformance.rounding import ulps
from onnx_iron.dtypes import Array

# Upper ends of a histogram's bins, in ulps; the last bin has no end.
BINS = (0, 1, 2, 4, 8, 16, 64, 256, 1024)

Progress = Callable[[int, int, str], None]


class Status(StrEnum):
    """What became of a case on an implementation."""

    PASSED = "passed"
    FAILED = "failed"
    DECLINED = "declined"


@dataclass(frozen=True)
class Outcome:
    """A case on an implementation.

    Attributes:
        worst: the largest distance of an element, in ulps, among those that are not excused by the
            magnitude of what was added up; of all calls, outputs and states.
        histogram: elements by their distance, in the bins that end at :data:`BINS`.
        detail: why it was declined, or what is wrong.
    """

    case: str
    subject: str
    dtype: str
    implementation: str
    status: Status
    worst: int = 0
    histogram: tuple[int, ...] = field(default=(0,) * (len(BINS) + 1))
    detail: str = ""


def run(
    cases: Sequence[Case],
    implementations: Iterable[Implementation],
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run every case on every implementation.

    Args:
        progress: told the cases done, their number, and the implementation's name.

    Returns:
        An outcome for each pair: none is left out.
    """
    outcomes = []
    for implementation in implementations:
        for done, case in enumerate(cases):
            if progress is not None:
                progress(done, len(cases), implementation.name)
            outcomes.append(judge(case, implementation))
    return outcomes


def judge(case: Case, implementation: Implementation) -> Outcome:
    """Run a case on an implementation. Whatever it raises is a failure, and its text is kept."""

    def outcome(status: Status, *found: object) -> Outcome:
        return Outcome(
            case.name, case.subject, case.dtype.name, implementation.name, status, *found
        )  # type: ignore[arg-type]

    try:
        results = implementation.run(case)
    except Declined as declined:
        return outcome(Status.DECLINED, 0, (0,) * (len(BINS) + 1), str(declined))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return outcome(Status.FAILED, 0, (0,) * (len(BINS) + 1), text)
    worst, counts, wrong = compare(case, results)
    status = Status.FAILED if wrong else Status.PASSED
    return outcome(status, worst, tuple(int(n) for n in counts), wrong)


def compare(case: Case, results: Results) -> tuple[int, Array, str]:
    """The worst distance, the histogram of all, and what is wrong first; empty where nothing is."""
    worst, counts, wrong = 0, np.zeros(len(BINS) + 1, np.int64), ""
    if len(results) != len(case.expected):
        return 0, counts, f"{len(results)} calls gave results, expected {len(case.expected)}"
    for number, (given, expected) in enumerate(zip(results, case.expected, strict=True)):
        call = case.calls[number]
        for name, wanted in expected.items():
            where = f"call {number} ({call.kind} numbers{_values(call.values)}), {name}"
            form = _form(given, name, wanted)
            if form:
                return worst, counts, f"{where}: {form}"
            distance = ulps(given[name], wanted.nearest)
            excused = _excused(given[name], wanted, case.tolerance)
            counted = np.where(excused, np.minimum(distance, case.tolerance.ulps), distance)
            counts += np.bincount(
                np.searchsorted(BINS, counted.reshape(-1)), minlength=len(BINS) + 1
            )
            worst = max(worst, int(counted.max(initial=0)))
            bad = counted > case.tolerance.ulps
            if bad.any() and not wrong:
                wrong = f"{where}: {_describe(bad, given[name], wanted, counted, case.tolerance)}"
    return worst, counts, wrong


def _values(values: Mapping[str, int]) -> str:
    return "".join(f", {name} {value}" for name, value in values.items())


def _form(given: Mapping[str, Array], name: str, wanted: Expected) -> str:
    if name not in given:
        return f"missing among {sorted(given)}"
    made = given[name]
    if (made.shape, made.dtype) != (wanted.nearest.shape, wanted.nearest.dtype):
        return (
            f"{made.dtype.name} {made.shape}, expected {wanted.nearest.dtype.name} "
            f"{wanted.nearest.shape}"
        )
    return ""


def _excused(given: Array, wanted: Expected, tolerance: Tolerance) -> Array:
    """Where an element is near enough for the magnitude of what was added up."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(given.astype(np.float64) - wanted.nearest.astype(np.float64))
        return np.asarray(apart <= tolerance.of_magnitude * wanted.magnitude)


def _describe(
    bad: Array, given: Array, wanted: Expected, counted: Array, tolerance: Tolerance
) -> str:
    place = tuple(int(i) for i in np.argwhere(bad)[np.argmax(counted[bad])])
    got, want = given[place], wanted.nearest[place]
    return (
        f"{int(bad.sum())} of {bad.size} elements are wrong; [{', '.join(map(str, place))}] is "
        f"{got}, expected {want}: {int(counted[place])} ulps away, {tolerance.ulps} are allowed "
        f"({tolerance.reason})"
    )
