"""The conformance suite: every cell of its matrix, and what it must catch."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_iron import conformance
from onnx_iron.conformance import Case, Declined, Implementation, NumpyReference, Outcome, Status
from onnx_iron.conformance.implementations import implementations
from onnx_iron.conformance.implementations.base import Results
from onnx_iron.conformance.implementations.sessions import iron
from onnx_iron.conformance.rounding import distance, rounded, spacing
from onnx_iron.conformance.runner import compare
from onnx_iron.dtypes import BFLOAT16, FLOAT32, FLOATS, Array
from onnx_iron.kernels import cpu_path
from onnx_iron.operators import OPERATORS

CASES = list(conformance.cases())
DOCUMENT = Path(__file__).parents[1] / "docs" / "conformance.md"


@pytest.fixture(scope="module")
def every() -> list[Implementation]:
    return list(implementations())


@pytest.fixture(scope="module")
def outcomes(every: list[Implementation]) -> list[Outcome]:
    return conformance.run(CASES, every)


def of(subject: str, dtype: Any = None) -> list[Case]:
    return [c for c in CASES if c.subject == subject and dtype in (None, c.dtype)]


# -- the matrix ---------------------------------------------------------------------------------


def test_every_implementation_computes_what_the_model_means(outcomes: list[Outcome]) -> None:
    failed = [f"{o.implementation}, {o.case}: {o.detail}" for o in outcomes if o.status == "failed"]
    assert not failed, "\n".join(failed)


def test_every_case_has_an_outcome_on_every_implementation(
    outcomes: list[Outcome], every: list[Implementation]
) -> None:
    pairs = Counter((o.case, o.implementation) for o in outcomes)
    assert pairs == Counter((c.name, i.name) for i in every for c in CASES)
    assert all(o.detail for o in outcomes if o.status is Status.DECLINED)


def test_every_operator_and_dtype_is_in_the_cases() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    found = {(case.subject, case.dtype) for case in CASES}
    assert found >= {(name, dtype) for name in OPERATORS for dtype in FLOATS}


def test_our_provider_and_onnxruntime_take_every_operator_and_graph(
    outcomes: list[Outcome],
) -> None:
    for part in ("numpy", "function bodies", "standard dialect", "custom ops"):
        declined = [o for o in outcomes if part in o.implementation and o.status == "declined"]
        assert not declined
    ours = f"IronExecutionProvider, {cpu_path()}"
    assert {o.status for o in outcomes if o.implementation == ours} == {Status.PASSED}


def test_states_are_updated_in_place_wherever_a_case_has_one(outcomes: list[Outcome]) -> None:
    """Of graphs, and of operators alone that update an operand; the others say so once."""
    updating = {name for name, op in OPERATORS.items() if op.updates}
    stateful = {case.subject for case in CASES if case.trace.states}
    for label, most in (("states in place", updating | stateful), ("every other state", stateful)):
        found = [o for o in outcomes if label in o.implementation]
        assert {o.status for o in found} == {Status.PASSED, Status.INAPPLICABLE}
        assert {o.subject for o in found if o.status is Status.PASSED} <= most
        assert len({o.detail for o in found if o.status is Status.INAPPLICABLE}) == 1
    in_place = [o for o in outcomes if o.implementation.endswith(", states in place")]
    assert {o.subject for o in in_place if o.status is Status.PASSED} >= updating | {
        "decoder layer, decode",
        "states that are swapped",
    }


def test_the_two_generations_of_the_npu_have_columns_of_their_own() -> None:
    one, two = (iron(generation) for generation in ("npu1", "npu2"))
    assert not {i.name for i in one} & {i.name for i in two}
    assert {i.options["device"] for i in (*one, *two)} == {"npu"}
    assert {i.options["device"] for i in iron(cpu_path())} == {"cpu"}


def test_no_float32_tolerance_is_looser_than_four_times_the_worst_seen(
    outcomes: list[Outcome],
) -> None:
    tolerances = {case.name: case.tolerance for case in CASES}
    worst: dict[Any, float] = {}
    for o in outcomes:
        tolerance = tolerances[o.case]
        if o.dtype == "float32" and (tolerance.float32 or tolerance.of_magnitude):
            worst[tolerance] = max(worst.get(tolerance, 0), o.share)
    assert worst
    assert min(worst.values()) >= 0.25, worst
    assert all(tolerance.bfloat16 <= 1 for tolerance in tolerances.values())


def test_no_known_difference_allows_more_than_four_times_the_worst_seen(
    every: list[Implementation], outcomes: list[Outcome]
) -> None:
    """Of those that hold for all calls of an operator: the share is of what they allow."""
    worst: dict[Any, float] = {}
    columns = {i.name: getattr(i, "differences", ()) for i in every}
    for o in outcomes:
        for known in columns[o.implementation]:
            if o.dtype == "float32" and known.subject == o.subject and known.tolerance:
                worst[known] = max(worst.get(known, 0), 0 if known.kinds else o.share)
    worst = {known: share for known, share in worst.items() if not known.kinds}
    assert {known.subject for known in worst} >= {"GELU", "SiLU", "Sigmoid", "Tanh", "Log"}
    assert min(worst.values()) >= 0.25, worst


def test_before_1_27_a_file_with_several_bodies_is_declined_for_that_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that would not open with a name for each body either is a failure."""
    from onnx_iron.conformance.implementations import sessions

    monkeypatch.setattr(sessions, "_VERSION", (1, 24))
    (case,) = (c for c in CASES if c.name == "encoder layer, float32")

    class Old(sessions.SessionImplementation):
        broken = False

        def _session(self, model: Any) -> Any:
            if self.broken or len({f.name for f in model.functions}) < len(model.functions):
                raise RuntimeError("it does not open")
            return super()._session(model)

    old = Old("function bodies, an older onnxruntime")
    outcome = conformance.judge(case, old)
    assert outcome.status is Status.DECLINED
    assert "knows one function body an operator" in outcome.detail
    Old.broken = True
    assert conformance.judge(case, old).status is Status.FAILED


# -- what it must catch -------------------------------------------------------------------------


@dataclasses.dataclass
class Wrong:
    """The numpy reference, its results changed."""

    change: Callable[[dict[str, Array]], Mapping[str, Array]]
    name: str = "wrong"

    def run(self, case: Case) -> Results:
        return [self.change(dict(call)) for call in NumpyReference().run(case)]


def off_by(ulps: int) -> Callable[[dict[str, Array]], Mapping[str, Array]]:
    def change(results: dict[str, Array]) -> dict[str, Array]:
        for array in results.values():
            bits = array.reshape(-1).view(np.int32 if array.dtype == FLOAT32 else np.int16)
            with np.errstate(over="ignore"):
                bits[-1:] += ulps
        return results

    return change


@pytest.mark.parametrize("subject", sorted({case.subject for case in CASES}))
def test_one_element_that_is_off_by_a_hundred_ulps_is_caught(subject: str) -> None:
    for case in of(subject):
        assert conformance.judge(case, Wrong(off_by(100))).status is Status.FAILED


@pytest.mark.parametrize("subject", ["Add", "Copy", "Narrow", "states that are swapped"])
def test_one_ulp_is_caught_where_the_result_is_exact(subject: str) -> None:
    for case in of(subject):
        assert conformance.judge(case, Wrong(off_by(1))).status is Status.FAILED


def without_states(results: dict[str, Array]) -> Mapping[str, Array]:
    return {name: array for name, array in results.items() if not name.startswith("present.")}


def zero_states(results: dict[str, Array]) -> Mapping[str, Array]:
    return {n: np.zeros_like(a) if n.startswith("present.") else a for n, a in results.items()}


def wider(results: dict[str, Array]) -> Mapping[str, Array]:
    return {name: array.astype(np.float64) for name, array in results.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_states, r"present\.\w+: it is missing"),
        (zero_states, r"present\.\w+: \d+ of \d+ elements are wrong"),
        (wider, r"float64 \(.*\), expected (float32|bfloat16)"),
    ],
)
def test_a_state_that_is_lost_and_another_dtype_are_caught(change: Any, words: str) -> None:
    for case in of("states that are swapped"):
        outcome = conformance.judge(case, Wrong(change))
        assert outcome.status is Status.FAILED
        assert re.search(words, outcome.detail), outcome.detail


def test_a_provider_that_loses_a_state_between_calls_is_caught() -> None:
    class Forgetful:
        name = "forgetful"

        def run(self, case: Case) -> Results:
            alone = [dataclasses.replace(case, calls=(call,)) for call in case.calls]
            return [NumpyReference().run(one)[0] for one in alone]

    for subject in (
        "decoder layer, decode",
        "short convolution, decode",
        "states that are swapped",
    ):
        for case in of(subject):
            assert conformance.judge(case, Forgetful()).status is Status.FAILED


def test_too_few_calls_and_exceptions_are_failures_and_a_refusal_is_not() -> None:
    class Odd:
        name = "odd"

        def __init__(self, answer: Exception | None) -> None:
            self.answer = answer

        def run(self, case: Case) -> Results:
            if self.answer is not None:
                raise self.answer
            return []

    case = of("SiLU")[0]
    few = conformance.judge(case, Odd(None))
    assert few.status is Status.FAILED
    assert few.detail == f"0 calls gave results, expected {len(case.calls)}"
    broken = conformance.judge(case, Odd(KeyError("y")))
    assert (broken.status, broken.detail) == (Status.FAILED, "KeyError: 'y'")
    declined = conformance.judge(case, Odd(Declined("no SiLU")))
    assert (declined.status, declined.detail) == (Status.DECLINED, "no SiLU")


def test_a_nan_for_a_number_and_a_number_for_a_nan_are_caught() -> None:
    case = of("Add", FLOAT32)[0]
    good = NumpyReference().run(case)
    assert not compare(case, good).wrong
    for number in (0, next(i for i, c in enumerate(case.calls) if c.kind == "non-finite")):
        results: Sequence[dict[str, Array]] = [
            {k: v.copy() for k, v in call.items()} for call in good
        ]
        y = results[number]["y"]
        nan = np.isnan(y)
        if nan.any():
            y[nan] = 1
        else:
            y[0, 0] = np.nan
        assert f"call {number}" in compare(case, results).wrong


def test_a_process_that_dies_is_a_failure_and_the_next_case_runs() -> None:
    from onnx_iron.conformance.cpu_paths import OnPath, other_paths

    if not other_paths():
        pytest.skip("the processor has one path")
    path = other_paths()[0]
    case = of("SiLU")[0]
    dead = conformance.judge(case, OnPath(path, Dying()))
    assert dead.status is Status.FAILED
    assert "ended with exit code 3" in dead.detail
    assert conformance.judge(case, OnPath(path, iron(path)[0])).status is Status.PASSED


class Dying:
    """Ends its process."""

    name = "dying"

    def run(self, case: Case) -> Results:
        import os

        os._exit(3)


# -- expected values ----------------------------------------------------------------------------


def test_rounding_to_bfloat16_is_once_and_to_the_nearest_even() -> None:
    # Just above half way: by way of float32 it would be half way, and go down to the even one.
    wide = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8 + 2**-40), np.inf])
    nearest = np.array([1 + 2**-7, 1, 1 + 2**-6, -(1 + 2**-7), np.inf])
    assert (rounded(wide, BFLOAT16).astype(np.float64) == nearest).all()
    assert (wide[:2].astype(np.float32).astype(BFLOAT16) == 1).all()


def test_rounding_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    numbers = np.random.default_rng(3).standard_normal(4096) * 2.0 ** np.arange(-140, 116, 1 / 16)
    narrow = numbers.astype(np.float32)
    ours = rounded(narrow.astype(np.float64), BFLOAT16).view(np.int16)
    assert (ours == torch.from_numpy(narrow).bfloat16().view(torch.int16).numpy()).all()


def test_spacing_is_numpys_and_an_infinity_follows_the_largest_number() -> None:
    numbers = np.array([0, 1, -1.5, 2**-126, 2**-130, 3e38], np.float32)
    assert (spacing(numbers) == np.abs(np.spacing(numbers)).astype(np.float64)).all()
    largest = np.array([np.finfo(np.float32).max])
    assert distance(np.array([np.inf], np.float32), largest) == spacing(largest)
    assert distance(np.float32([np.nan]), np.float32([np.nan])) == 0
    assert distance(np.float32([np.nan]), np.float32([1])) == np.inf


# -- the document's example ---------------------------------------------------------------------


def test_the_documented_implementation_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(example, str(DOCUMENT), "exec"), found)
    assert {o.status for o in found["outcomes"]} == {Status.PASSED}
    assert found["failed"] == []
