"""Hostile models and tensors: refused in words or computed rightly, never a crash or a hang."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from onnx_iron.conformance.hostile import case as cases
from onnx_iron.conformance.hostile import worker as workers
from onnx_iron.conformance.hostile.case import HostileCase, Plan, load, make, save
from onnx_iron.conformance.hostile.change import CHANGES
from onnx_iron.conformance.hostile.originals import names, original
from onnx_iron.conformance.hostile.search import Fault, search, smaller
from onnx_iron.conformance.hostile.stages import Attempt
from onnx_iron.conformance.hostile.verdict import MOST_MEGABYTES, Judged, Verdict, judge
from onnx_iron.conformance.hostile.worker import Worker, stages

# What once was a fault; CONTRIBUTING says how a file comes here.
CORPUS = sorted((Path(__file__).parent / "corpus" / "hostile").glob("*.zip"))
OURS = ("provider", "session", "custom ops")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def test_hostile_input_is_refused_in_words_or_computed_rightly() -> None:
    found = search(range(250))
    assert {kind: str(fault.case) for kind, fault in found.faults.items()} == {}
    # Each stage runs some and refuses some: the cases are neither harmless nor all broken at once.
    for stage in OURS:
        assert found.counts[stage, Verdict.AGREES] > 40
        assert found.counts[stage, Verdict.REFUSED] > 40


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_was_a_fault_is_none(path: Path, worker: Worker) -> None:
    judged = worker.run(load(path))
    assert [found.stage for found in judged] == list(stages())
    assert [found for found in judged if found.verdict is Verdict.FAULT] == []


@pytest.mark.parametrize("name", names())
def test_an_original_runs_everywhere_and_agrees(name: str, worker: Worker) -> None:
    judged = worker.run(HostileCase(original(name), name, ()))
    assert {found.verdict for found in judged} == {Verdict.AGREES}, judged


def test_a_case_follows_from_its_seed() -> None:
    one, again, other = make(Plan(7)), make(Plan(7)), make(Plan(8))
    assert str(one) == str(again) != str(other)
    assert one.draft.model == again.draft.model
    assert one.draft.weights == again.draft.weights
    for name, array in one.draft.feeds.items():
        np.testing.assert_array_equal(array, again.draft.feeds[name])


def test_every_change_and_every_original_is_in_a_few_hundred_cases() -> None:
    counted: collections.Counter[str] = collections.Counter()
    for seed in range(400):
        name, chosen = cases._chosen(seed)
        counted.update((name, *chosen))
    assert set(counted) == {*names(), *CHANGES}


def test_a_kept_case_is_the_same_case_and_the_same_file(tmp_path: Path) -> None:
    case = make(Plan(12))
    save(case, tmp_path / "one.zip")
    again = load(tmp_path / "one.zip")
    assert (str(again), again.draft.weights) == (str(case), case.draft.weights)
    assert again.draft.model == case.draft.model
    assert again.draft.feeds.keys() == case.draft.feeds.keys()
    save(again, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


# -- what is a fault ------------------------------------------------------------------------------


def ran(**results: list[float]) -> Attempt:
    return Attempt(True, {name: np.float32(numbers) for name, numbers in results.items()})


def raised(kind: str, text: str) -> Attempt:
    return Attempt(error=kind, text=text)


@pytest.mark.parametrize(
    ("stage", "made", "stock", "words"),
    [
        ("provider", ran(y=[1, 2]), ran(y=[1, 2.5]), "'y' is 0.5 away"),
        ("provider", ran(y=[1, np.nan]), ran(y=[1, 2]), "'y' is nan away"),
        ("provider", ran(y=[1]), ran(y=[1, 2]), "expected float32 (2,)"),
        ("provider", ran(z=[1]), ran(y=[1]), "outputs ['z'], expected ['y']"),
        ("provider", raised("E", "planner failed with KeyError: ''"), ran(y=[1]), "of the inside"),
        ("provider", raised("E", " "), ran(y=[1]), "without words"),
        ("session", raised("builtins.KeyError", "'x'"), ran(y=[1]), "not documented"),
        ("provider", Attempt(megabytes=MOST_MEGABYTES + 1), ran(), "it took 513 MB"),
        ("provider", Attempt(unexamined=["Add 'a': KeyError()"]), ran(), "the planner failed"),
    ],
)
def test_a_fault_is_seen(stage: str, made: Attempt, stock: Attempt, words: str) -> None:
    judged = judge(stage, made, stock, ambiguous=False)
    assert judged.verdict is Verdict.FAULT
    assert words in judged.words


def test_a_state_in_place_is_held_to_every_bit() -> None:
    made = ran(y=[1, 2])
    made.in_place = {"y": np.float32([1, np.nextafter(np.float32(2), np.float32(3))])}
    judged = judge("provider", made, ran(y=[1, 2]), ambiguous=False)
    assert judged == Judged("provider", Verdict.FAULT, "states in place: 'y' has other numbers")


@pytest.mark.parametrize(
    ("made", "stock", "verdict"),
    [
        (ran(y=[1]), ran(y=[1]), Verdict.AGREES),
        (ran(y=[1]), raised("E", "no"), Verdict.RUNS),
        (raised("E", "x is 7, expected 8"), raised("E", "no"), Verdict.REFUSED),
        (raised("E", "x is 7, expected 8"), ran(y=[1]), Verdict.STRICTER),
        # What onnxruntime says by itself is not ours to say better.
        (raised("E", "std::bad_alloc"), raised("E", "std::bad_alloc"), Verdict.REFUSED),
    ],
)
def test_what_is_no_fault(made: Attempt, stock: Attempt, verdict: Verdict) -> None:
    assert judge("provider", made, stock, ambiguous=False).verdict is verdict


def test_of_two_meanings_neither_is_wrong() -> None:
    assert judge("provider", ran(y=[1]), ran(y=[2]), ambiguous=True).verdict is Verdict.AGREES


_ANSWERS_ONE = """
import os, time
from multiprocessing.connection import Connection
from onnx_iron.conformance.hostile.verdict import Judged, Verdict
connection = Connection({number})
connection.send("ready")
if "stock" in connection.recv().stages:
    connection.send(Judged("stock", Verdict.AGREES))
"""


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("os.kill(os.getpid(), 11)", "the process ended with -11"),
        ("os.write(2, b'==1==ERROR: AddressSanitizer: heap\\\\n'); os._exit(1)", "ERROR: Address"),
        ("time.sleep(60)", "it took more than 1 seconds"),
    ],
)
def test_a_crash_and_a_hang_are_faults_of_the_stages_after_the_last_answer(
    then: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_SERVE", _ANSWERS_ONE + then)
    monkeypatch.setattr(workers, "SECONDS", 1.0)
    worker = Worker()
    judged = worker.run(make(Plan(1)))
    worker.close()
    assert [(found.stage, found.verdict) for found in judged] == [
        ("stock", Verdict.AGREES),
        *((stage, Verdict.FAULT) for stage in OURS),
    ]
    assert all(words in found.words for found in judged[1:])


def test_where_plain_onnxruntime_ends_the_process_we_may_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_SERVE", _ANSWERS_ONE.partition("if ")[0])
    worker = Worker()
    assert {found.verdict for found in worker.run(make(Plan(1)))} == {Verdict.ENDED}
    worker.close()


def test_a_fault_is_made_small() -> None:
    seed = next(s for s in range(100) if len(make(Plan(s)).words) == 4)
    culprit = make(Plan(seed)).words[2]

    class Judge:
        def run(self, case: HostileCase) -> list[Judged]:
            verdict = Verdict.FAULT if culprit in case.words else Verdict.AGREES
            return [Judged("provider", verdict, "it fell")]

    case = make(Plan(seed))
    fault = Fault(Plan(seed), case, Judge().run(case)[0])
    small = smaller(fault, Judge())  # type: ignore[arg-type]
    assert small.case.words == (culprit,)
