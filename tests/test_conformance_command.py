"""``onnx-iron conformance``: what it selects, writes and says."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_iron.conformance import NumpyReference, Outcome, Status, cases, run
from onnx_iron.conformance.implementations.sessions import SessionImplementation, provider
from onnx_iron.conformance.node_tests import node_tests, run_node_tests
from onnx_iron.conformance.page import to_html
from onnx_iron.conformance.report import Report, environment, from_json, reproduction, to_json
from onnx_iron.conformance.runner import NO_ELEMENTS
from onnx_iron.provider import get_ep_name, get_library_path
from onnx_iron.tools.main import main

FAILED = Outcome(
    *("Add: a 4x64, b 4x64, float32", "Add", "float32", "theirs <b>", Status.FAILED),
    *(7, 3.5, NO_ELEMENTS, "1 of 256 elements", "--provider Theirs"),
)


def report(*outcomes: Outcome) -> Report:
    return Report.of([environment()], outcomes)


def test_the_matrix_is_printed_and_success_is_exit_code_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["conformance", "--op", "SiLU", "--implementation", "numpy"]) == 0
    printed = capsys.readouterr().out
    assert "  1  numpy reference\n" in printed
    assert "SiLU  float32     11/11 (" in printed
    assert printed.endswith("22 passed, 0 failed, 0 declined\n")


def test_a_failure_is_exit_code_1_one_line_and_a_command_to_run_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text(to_json(report(FAILED)))
    page, kept = tmp_path / "report.html", tmp_path / "report.json"
    command = ["conformance", "--op", "Add", "--implementation", "numpy", "--merge", str(other)]
    command += ["--failed-only", "--report", str(page), "--json", str(kept)]
    assert main(command) == 1
    shown = capsys.readouterr()
    assert shown.err.endswith("onnx-iron: error: 1 of 33 outcomes are failures\n")
    again = "onnx-iron conformance --case 'Add: a 4x64, b 4x64, float32' --provider Theirs"
    assert again in shown.out
    assert "numpy reference" not in shown.out
    assert shown.out.endswith("32 passed, 1 failed, 0 declined\n")
    assert "theirs &lt;b&gt;: 1<" in page.read_text()
    assert "1 of 256 elements" in page.read_text()
    assert from_json(kept.read_text(), "kept").outcomes == (FAILED,)


def test_merging_keeps_every_outcome_and_of_two_the_failure() -> None:
    here = run([c for c in cases() if c.subject == "Copy"], [NumpyReference()])
    worse = Outcome(*(here[0].case, "Copy", "float32", here[0].implementation, Status.FAILED))
    merged = report(*here).merged([report(worse, FAILED)])
    assert len(merged.outcomes) == len(here) + 1
    assert merged.failed == [worse, FAILED]
    assert len(merged.environments) == 2


def test_a_report_comes_back_from_json(tmp_path: Path) -> None:
    made = report(*run([c for c in cases() if c.subject == "Copy"], [NumpyReference()]), FAILED)
    assert from_json(to_json(made), "made") == made
    with pytest.raises(ValueError, match="x is no report of onnx-iron conformance"):
        from_json('{"format": "other"}', "x")


def test_the_page_asks_nothing_of_a_network_and_runs_no_script() -> None:
    page = to_html(report(FAILED))
    assert not any(word in page for word in ("<script", "http:", "https:", "<link", "@import"))


def test_the_page_says_of_each_cell_what_became_of_it() -> None:
    def outcome(subject: str, status: Status, detail: str = "") -> Outcome:
        return Outcome(f"{subject} case", subject, "float32", "ours", status, detail=detail)

    page = to_html(
        report(
            outcome("Add", Status.PASSED),
            outcome("Sub", Status.PASSED, "it is flushed"),
            outcome("Mul", Status.FAILED, "7 ulps away"),
            outcome("Div", Status.DECLINED, "no Div"),
            outcome("Neg", Status.INAPPLICABLE, "no state"),
        )
    )
    matrix = page.partition("<tbody>")[2].partition("</tbody>")[0]
    kinds = {"Add": "passed", "Sub": "known", "Mul": "failed", "Div": "declined"}
    kinds["Neg"] = "inapplicable"
    for (subject, kind), row in zip(kinds.items(), matrix.split("<tr>")[1:], strict=True):
        assert f">{subject}<" in row
        assert f'<td class="{kind}"' in row
    for detail in ("it is flushed", "no Div", "no state", "7 ulps away"):
        assert detail in page
    assert "1 of 5 outcomes are failures" in page
    # What failed is read before the matrix.
    assert page.index("7 ulps away") < page.index("<tbody>")
    assert "Nothing failed" in to_html(report(outcome("Add", Status.PASSED)))


def test_reproduction_commands_parse_and_select_one_case_and_implementation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(c for c in cases() if c.subject == "ProjectionGEMM" and "silu" in c.name)
    (outcome,) = run([case], [NumpyReference()])
    kept = tmp_path / "kept.json"
    assert main([*shlex.split(reproduction(outcome))[1:], "--json", str(kept)]) == 0
    (again,) = json.loads(kept.read_text())["outcomes"]
    assert (again["case"], again["implementation"]) == (case.name, "numpy reference")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--op", "Sigh"], "no case is selected; --op takes Abs, Add, ArgMax, Attention"),
        (["--implementation", "abacus"], "no implementation's name holds ['abacus']; there are: "),
        (["--provider", "NoneProvider"], "onnxruntime knows no provider 'NoneProvider' here"),
        (["--library", "ep.so"], "--library and --ep-name go together"),
        (["--provider-option", "a=b"], "--provider-option is for a provider"),
        (["--op", "Add", "--merge", "none.json"], "none.json"),
    ],
)
def test_what_selects_nothing_says_what_there_is(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", *options]) == 1
    assert words in capsys.readouterr().err


def test_a_named_provider_is_held_to_the_cases(capsys: pytest.CaptureFixture[str]) -> None:
    for named in ("CPUExecutionProvider", "IronExecutionProvider"):
        command = ["conformance", "--op", "GEMV", "--provider", named]
        assert main([*command, "--dtype", "float32"]) == 0
        assert "GEMV  float32     13/13 (" in capsys.readouterr().out


def test_onnxs_node_tests_are_passed_or_declined_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    command = ["conformance", "--provider", "IronExecutionProvider", "--json", str(kept)]
    for name in ("test_add", "test_add_uint8", "test_layer_normalization_2d_axis0", "test_det_2d"):
        command += ["--case", f"onnx: {name}"]
    assert main(command) == 0
    assert "onnx's node tests" in capsys.readouterr().out
    found = {o.case: o for o in from_json(kept.read_text(), "kept").outcomes}
    assert found["onnx: test_add"].status is Status.PASSED
    assert found["onnx: test_det_2d"].status is Status.DECLINED
    assert found["onnx: test_det_2d"].detail == "IronExecutionProvider takes none of its nodes"
    again = reproduction(found["onnx: test_add"])
    assert again == (
        "onnx-iron conformance --case 'onnx: test_add' --provider IronExecutionProvider"
    )


def test_a_provider_that_gets_a_node_wrong_is_caught() -> None:
    tests = {test.name: test for test in node_tests()}
    wrong = dataclasses.replace(tests["test_add"], model=tests["test_sub"].model)
    ours = provider("IronExecutionProvider", {})
    # With the expected results of another operator plain onnxruntime fails as well, and says so.
    (outcome,) = run_node_tests(ours, [wrong])
    assert outcome.status is Status.DECLINED
    assert "plain onnxruntime does not pass it either: another result" in outcome.detail

    class Wrong(SessionImplementation):
        def open(self, model: onnx.ModelProto) -> Any:
            own = model.graph.name == "test_add"
            return super().open(tests["test_sub"].model if own else model)

    (implementation,) = ours
    broken = Wrong(**vars(implementation))
    (outcome,) = run_node_tests([broken], [tests["test_add"]])
    assert (outcome.status, outcome.detail) == (
        Status.FAILED,
        "output 0: 60 of 60 elements are wrong",
    )


def test_vectors_are_backend_tests_that_onnxs_evaluator_passes(tmp_path: Path) -> None:
    """Read as onnx's backend test loader does: by the model's inputs and outputs in order."""
    for subject in ("Add", "states that are swapped", "a state never written, and one never read"):
        assert main(["conformance", "--op", subject, "--write-vectors", str(tmp_path)]) == 0
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 36
    for folder in folders:
        model = onnx.load(folder / "model.onnx")
        onnx.checker.check_model(model)
        evaluator = ReferenceEvaluator(onnx.inliner.inline_local_functions(model))
        sets = sorted(folder.glob("test_data_set_*"))
        assert len(sets) >= 2
        for data in sets:
            read = [
                [
                    numpy_helper.to_array(onnx.load_tensor(data / f"{kind}_{place}.pb"))
                    for place in range(len(list(data.glob(f"{kind}_*.pb"))))
                ]
                for kind in ("input", "output")
            ]
            names = [value.name for value in model.graph.input]
            with np.errstate(all="ignore"):
                results = evaluator.run(None, dict(zip(names, read[0], strict=True)))
            for result, expected in zip(results, read[1], strict=True):
                np.testing.assert_array_equal(
                    np.asarray(result, np.float32), np.asarray(expected, np.float32)
                )


@pytest.mark.parametrize(
    "options",
    [
        ["--ep-name", "CPUExecutionProvider"],
        ["--ep-name", get_ep_name()],
        # Asked in this process: the one that is started has to find the planner by itself.
        ["--ep-name", get_ep_name(), "--ep-library", get_library_path()],
    ],
)
def test_the_package_holds_its_own_tests_for_a_providers_ci(
    options: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs"]
    command += ["-p", "onnx_iron.pytest_options"]  # which an installed package brings by itself
    command += ["onnx_iron.conformance", *options, "-k", "RoPE"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    chosen = [case for case in cases() if "RoPE" in case.name]
    columns = list(provider(options[1], {}))
    assert f"{len(chosen) * len(columns)} passed" in done.stdout


def test_another_build_of_our_own_library_is_refused_with_what_to_do(tmp_path: Path) -> None:
    other = tmp_path / "libonnx_iron.so"
    other.write_bytes(Path(get_library_path()).read_bytes())
    with pytest.raises(ValueError, match=f"set ONNX_IRON_LIBRARY={other} instead"):
        provider(get_ep_name(), {}, other)


def _environment() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
