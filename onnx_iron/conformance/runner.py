"""Runs cases on implementations and judges what they give."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.expected import Expected
from onnx_iron.conformance.expected import Results as ExpectedResults
from onnx_iron.conformance.implementations.base import (
    Declined,
    Difference,
    Implementation,
    Inapplicable,
    Results,
)
from onnx_iron.conformance.rounding import distance, spacing
from onnx_iron.dtypes import Array
from onnx_iron.operators.declaration import Tolerance

# Upper ends of a histogram's bins, in ulps; the last bin has no end.
# The largest float32.
_LARGEST = float(np.finfo(np.float32).max)
BINS = (0, 1, 2, 4, 8, 16, 64, 256, 1024)
NO_ELEMENTS = (0,) * (len(BINS) + 1)

Progress = Callable[[int, int, str], None]


class Status(StrEnum):
    """What became of a case on an implementation."""

    PASSED = "passed"
    FAILED = "failed"
    DECLINED = "declined"
    INAPPLICABLE = "inapplicable"


@dataclass(frozen=True)
class Outcome:
    """A case on an implementation.

    Attributes:
        worst: the largest error of an element in ulps, without the part that the magnitude of what
            was added up excuses; of all calls, outputs and states, rounded up.
        share: the largest error of an element as a part of what it was allowed.
        histogram: elements by their error in ulps, in the bins that end at :data:`BINS`.
        arguments: what selects the implementation on the command line.
        detail: why it was declined or does not apply, or what is wrong; of a pass, in what the
            implementation is known to differ.
    """

    case: str
    subject: str
    dtype: str
    implementation: str
    status: Status
    worst: int = 0
    share: float = 0.0
    histogram: tuple[int, ...] = NO_ELEMENTS
    detail: str = ""
    arguments: str = ""


@dataclass
class Comparison:
    """What comparing results has found so far; the first fault is kept."""

    worst: int = 0
    share: float = 0.0
    histogram: Array = field(default_factory=lambda: np.zeros(len(BINS) + 1, np.int64))
    wrong: str = ""
    known: dict[str, None] = field(default_factory=dict)


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
    name = implementation.name
    arguments = getattr(implementation, "arguments", "") or f"--implementation {shlex.quote(name)}"
    outcome = functools.partial(
        Outcome, case.name, case.subject, case.dtype.name, name, arguments=arguments
    )
    try:
        results = implementation.run(case)
    except Declined as declined:
        return outcome(Status.DECLINED, detail=str(declined))
    except Inapplicable as inapplicable:
        return outcome(Status.INAPPLICABLE, detail=str(inapplicable))
    except Exception as error:
        return outcome(Status.FAILED, detail=f"{type(error).__name__}: {error}")
    found = compare(case, results, getattr(implementation, "differences", ()))
    return outcome(
        Status.FAILED if found.wrong else Status.PASSED,
        found.worst,
        found.share,
        tuple(int(count) for count in found.histogram),
        found.wrong or "; ".join(found.known),
    )


def compare(case: Case, results: Results, differences: Sequence[Difference] = ()) -> Comparison:
    """How far all results are from those expected, or from what an implementation declares."""
    found = Comparison()
    if len(results) != len(case.expected):
        found.wrong = f"{len(results)} calls gave results, expected {len(case.expected)}"
        return found
    for number, (call, given) in enumerate(zip(case.calls, results, strict=True)):
        known = next((d for d in differences if d.applies(case, call)), None)
        expected = _expected(case, known)[number]
        tolerance = known.tolerance if known and known.tolerance else case.tolerance
        # Of a known difference that says nothing of the results, none is held to anything.
        judged = known is None or bool(known.flushes or known.tolerance or known.expected)
        if known is not None:
            found.known[known.reason] = None
        for name, wanted in expected.items():
            wrong = _form(given.get(name), wanted)
            if judged and not wrong:
                wrong = _values(given[name], wanted, tolerance, found)
            if wrong and not found.wrong:
                found.wrong = f"call {number} ({call}), {name}: {wrong}"
    return found


def _expected(case: Case, known: Difference | None) -> Sequence[ExpectedResults]:
    if known is not None and known.expected is not None:
        return known.expected(case)
    return case.expected_flushed if known is not None and known.flushes else case.expected


def _form(given: Array | None, wanted: Expected) -> str:
    if given is None:
        return "it is missing"
    shape, dtype = wanted.nearest.shape, wanted.nearest.dtype
    if (given.shape, given.dtype) != (shape, dtype):
        return f"{given.dtype.name} {given.shape}, expected {dtype.name} {shape}"
    return ""


def _values(given: Array, wanted: Expected, tolerance: Tolerance, found: Comparison) -> str:
    """Judge elements: ``|given - nearest| <= ulps * spacing + of_magnitude * magnitude``."""
    apart, ulp = distance(given, wanted.nearest), spacing(wanted.nearest)
    excused = tolerance.of_magnitude * wanted.magnitude
    # Parts that are infinite in float32 make a sum infinite, or NaN, as their order has it.
    apart = np.where((wanted.magnitude > _LARGEST) & ~_finite(given), 0.0, apart)
    with np.errstate(invalid="ignore"):  # what has no bound is excused wherever it is
        ulps = np.where(apart > excused, np.ceil((apart - excused) / ulp), 0)
    allowed = getattr(tolerance, given.dtype.name, 0) * ulp + excused
    bad, judged = apart > allowed, (apart > 0) & np.isfinite(allowed)
    with np.errstate(divide="ignore"):
        shares = np.divide(apart, allowed, out=np.zeros_like(apart), where=judged)
    found.histogram = found.histogram + np.bincount(
        np.searchsorted(BINS, ulps.reshape(-1)), minlength=len(BINS) + 1
    )
    # A NaN for a number is as far as numbers of the dtype can be.
    most = 2.0 ** (8 * given.dtype.itemsize)
    found.worst = max(found.worst, int(min(ulps.max(initial=0), most)))
    found.share = max(found.share, min(float(shares.max(initial=0)), most))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[np.argmax(ulps[bad])])
    error = apart[place] / ulp[place]
    return (
        f"{int(bad.sum())} of {bad.size} elements are wrong; [{', '.join(map(str, place))}] is "
        f"{given[place]}, expected {wanted.nearest[place]}: {_number(error)} ulps away, "
        f"{_number(allowed[place] / ulp[place])} are allowed ({tolerance.reason})"
    )


def _finite(given: Array) -> Array:
    return np.isfinite(given.astype(np.float64))


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "infinitely many"
