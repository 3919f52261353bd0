"""The list of mutants: each still fits the code, and the tests notice those that are tried.

``pytest tests/test_mutants.py --mutants`` tries all, as ``python tests/mutants/run.py`` does.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from mutants.run import (
    CHECKOUT,
    Mutant,
    Outcome,
    Ran,
    choose,
    judged,
    main,
    read_mutants,
    try_all,
)

from onnx_iron.native import library_path

MUTANTS = read_mutants()
# Cheap ones of several layers, that leave the native library as it is.
TRIED = (
    "weights of one name are shared although their bytes differ",
    "a per-call index past its own axis reads the next row",
    "a value's bytes are free when it takes another's place",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code_and_names_tests_that_are_there(mutant: Mutant) -> None:
    mutant.applied((CHECKOUT / mutant.file).read_text())
    for test in mutant.tests:
        path, _, function = test.partition("::")
        source = (CHECKOUT / path).read_text()
        assert not function or f"def {function.partition('[')[0]}(" in source


def test_every_layer_has_its_mutants() -> None:
    found = Counter(mutant.group for mutant in MUTANTS)
    assert found.total() >= 150
    assert min(found.values()) >= 10, found
    assert {"cpu", "planner", "runtime", "export", "models", "aie", "npu"} <= found.keys()


def test_the_tests_notice_some_mutants(tmp_path: Path) -> None:
    chosen = [mutant for mutant in MUTANTS if mutant.name in TRIED]
    outcomes = try_all(chosen, tmp_path, library=library_path())
    assert outcomes == dict.fromkeys(TRIED, Outcome.CAUGHT)


def test_a_mutant_that_no_test_notices_survives_and_one_that_moved_is_told(tmp_path: Path) -> None:
    tests = ("tests/test_value.py::test_what_cancels_is_fixed",)
    file = "onnx_iron/graph/value.py"
    text = (CHECKOUT / file).read_text()
    unseen = Mutant("unseen", "none", file, text[-40:], text[-40:] + "\n", tests)
    moved = Mutant("moved", "none", file, "no such text", "", tests)
    broken = Mutant("broken", "none", file, "from __future__ import", "from __future__", tests)
    outcomes = try_all([unseen, moved, broken], tmp_path, library=library_path())
    assert outcomes == {
        "unseen": Outcome.SURVIVED,
        "moved": Outcome.MOVED,
        "broken": Outcome.BROKEN,
    }
    assert (CHECKOUT / file).read_text() == text


def test_tests_that_fail_anyway_catch_nothing(tmp_path: Path) -> None:
    fails = ("tests/test_value.py::no_such_test",)
    mutant = Mutant("any", "none", "onnx_iron/graph/value.py", "no such text", "", fails)
    with pytest.raises(RuntimeError, match="fail without a mutant"):
        try_all([mutant], tmp_path, library=library_path())


@pytest.mark.parametrize(
    ("ran", "npu", "outcome"),
    [
        (Ran(0, "3 passed in 0.1s"), "", Outcome.SURVIVED),
        (Ran(0, "2 passed, 1 skipped in 0.1s"), "", Outcome.SURVIVED),
        (Ran(0, "3 skipped in 0.1s"), "", Outcome.UNTRIED),
        (Ran(77, "SKIPPED: the simulated NPU can't be set up here"), "npu2", Outcome.UNTRIED),
        (Ran(1, "1 failed"), "", Outcome.CAUGHT),
        (Ran(-11, ""), "", Outcome.CAUGHT),
        (Ran(None, "it went on for ever"), "", Outcome.CAUGHT),
        (Ran(2, "1 error during collection"), "", Outcome.BROKEN),
    ],
)
def test_an_end_of_the_tests_is_judged(ran: Ran, npu: str, outcome: Outcome) -> None:
    assert judged(ran, Mutant("any", "none", "a.py", "a", "b", ("tests",), npu=npu)) is outcome


def test_mutants_are_chosen_by_name_file_or_list() -> None:
    assert choose(MUTANTS, []) == MUTANTS
    assert {m.group for m in choose(MUTANTS, ["cpu.toml"])} == {"cpu"}
    assert {m.file for m in choose(MUTANTS, ["provider/arena.py"])} == {"provider/arena.py"}
    assert [m.name for m in choose(MUTANTS, [TRIED[0]])] == [TRIED[0]]


def test_the_list_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "--list", "--only", TRIED[0]])
    assert main() == 0
    assert TRIED[0] in capsys.readouterr().out


def test_the_tests_notice_every_mutant(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not request.config.getoption("--mutants"):
        pytest.skip("takes long; pytest tests/test_mutants.py --mutants")
    outcomes = try_all(MUTANTS, tmp_path, jobs=os.cpu_count() or 1)
    fine = (Outcome.CAUGHT, Outcome.UNTRIED)
    assert {name: outcome for name, outcome in outcomes.items() if outcome not in fine} == {}
