"""Drawn graphs: what holds for every graph, and that what is drawn is worth checking."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import Exported, Network
from provider_models import iron

from onnx_iron.conformance import properties
from onnx_iron.conformance.batch_drawing import batches
from onnx_iron.conformance.drawing import drawn_operators, graphs
from onnx_iron.conformance.programs import Program, same_bits, source
from onnx_iron.conformance.row_drawing import rowwise, sequences
from onnx_iron.dtypes import BFLOAT16
from onnx_iron.operators import OPERATORS
from onnx_iron.operators.silu import SiLU
from onnx_iron.tools.main import main

ANY = list(HealthCheck)  # a body takes many draws


# -- what holds -----------------------------------------------------------------------------------


@settings(max_examples=25, suppress_health_check=ANY)
@given(graphs())
def test_every_implementation_means_what_a_drawn_graph_says(program: Program) -> None:
    properties.means_what_it_says(program)


@settings(max_examples=25, suppress_health_check=ANY)
@given(graphs())
def test_states_in_place_have_the_bits_of_copied_ones(program: Program) -> None:
    properties.in_place_is_copied(program)


@settings(max_examples=25, suppress_health_check=ANY)
@given(sequences())
def test_a_sequence_in_any_chunks_has_the_bits_of_single_rows(
    drawn: tuple[Program, tuple[tuple[int, ...], ...]],
) -> None:
    properties.chunks_do_not_matter(*drawn)


@settings(max_examples=25, suppress_health_check=ANY)
@given(batches())
def test_a_batch_has_the_bits_of_its_sequences(program: Program) -> None:
    properties.a_batch_is_its_sequences(program)


@settings(max_examples=10, suppress_health_check=ANY)
@given(st.data())
def test_views_commute_with_reshape(data: st.DataObject) -> None:
    rows, inner, outer = (data.draw(st.integers(1, 5)) for _ in range(3))
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start + 1, rows))
    size = inner * outer

    def body(self: Any, x: Any) -> Any:
        h = x * 1.0
        return {
            "sliced first": h[start:stop].reshape((stop - start) * inner, outer).copy(),
            "reshaped first": h.reshape(-1, outer)[start * inner : stop * inner].copy(),
            "flat": h.reshape(-1)[start * size : stop * size].reshape(-1, outer).copy(),
            "turned twice": h.reshape(-1, outer).T.copy().T.copy()[start * inner : stop * inner]
            + 0.0,
        }

    x = np.arange(1.0, rows * size + 1, dtype=np.float32).reshape(rows, inner, outer)
    wanted = x[start:stop].reshape(-1, outer)
    trace = Network(body).trace(x=(x.shape, np.float32))
    ours = Exported(trace, lambda model: iron(model.SerializeToString()))
    for results in (Exported(trace)(x=x), ours(x=x)):
        for name, array in results.items():
            np.testing.assert_array_equal(array, wanted, err_msg=name)


# -- what was found -------------------------------------------------------------------------------


def drawn(parts: list[str], body: list[str], calls: int = 1) -> Program:
    """A program of float32 with one input x0 (3, 4)."""
    text = source(parts, ["x0"], [], body)
    return Program(text, "float32", {"x0": (3, 4)}, ({},) * calls)


@pytest.mark.parametrize(
    "value", ["self.new", "self.new.reshape(4, 3).copy().reshape(3, 4)", "self.new[...]"]
)
def test_a_state_that_takes_a_constant_is_read_before(value: str) -> None:
    parts = ["self.kept = state((3, 4), DTYPE)", "self.new = np.ones((3, 4), DTYPE)"]
    body = ["y = self.kept + x0", f"self.kept[...] = {value}", 'return {"y": y}']
    properties.in_place_is_copied(drawn(parts, body, 2))
    properties.means_what_it_says(drawn(parts, body, 2), "states in place")


# -- what is drawn --------------------------------------------------------------------------------


def test_bodies_have_every_operator_many_steps_and_several_states() -> None:
    operators: set[str] = set()
    depths, states, judged = [], [], []

    @settings(max_examples=100, suppress_health_check=ANY)
    @given(graphs())
    def look(program: Program) -> None:
        case = program.case()
        operators.update(step.op.name for step in case.trace.steps)
        depths.append(len(case.trace.steps))
        states.append(len(case.trace.states))
        for results in case.expected:
            for wanted in results.values():
                largest = np.abs(wanted.nearest.astype(np.float64)).max(initial=0)
                allowed = case.tolerance.of_magnitude * wanted.magnitude.max(initial=0)
                judged.append(math.isfinite(largest) and allowed <= 0.1 * largest)

    look()
    # Each is drawn rarely where there are many.
    assert len({op.name for op in drawn_operators()} - operators) <= 5
    assert max(depths) >= 15
    assert max(states) == 3
    # Elsewhere errors are as large as what they are the errors of.
    assert np.mean(judged) > 0.8


def test_an_operator_whose_rows_see_one_another_is_not_row_by_row() -> None:
    cases = {name: list(op.cases) for name, op in OPERATORS.items()}
    assert rowwise(OPERATORS["RMSNorm"], cases["RMSNorm"][0])
    assert not rowwise(OPERATORS["Attention"], cases["Attention"][-1])  # causal: rows have places
    assert not rowwise(OPERATORS["CausalConv1d"], cases["CausalConv1d"][0])


# -- what a failure looks like ----------------------------------------------------------------


def test_a_failure_becomes_a_script_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = SiLU.oracle
    monkeypatch.setattr(SiLU, "oracle", lambda self, x: 1.01 * oracle(self, x))
    program = drawn([], ["h = F.silu(x0)", 'return {"h": h}'])
    with pytest.raises(AssertionError, match="elements are wrong"):
        properties.means_what_it_says(program, "numpy reference")
    path = tmp_path / "failure.py"
    path.write_text(program.script("means_what_it_says", "numpy reference"))
    command = [sys.executable, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    # The script's own process has a right oracle: there it holds.
    assert run.stdout == "it holds\n", run.stderr


def test_a_row_that_sees_its_padding_is_caught() -> None:
    text = source(
        [],
        ["x0"],
        ["position", "rows"],
        ["h = x0[:rows]", "h = h + h[h.shape[0] - 1]", 'return {"h": h}'],
    )
    program = Program(text, "float32", {"x0": (5, 4)}, ())
    with pytest.raises(AssertionError, match="other bits than of single rows"):
        properties.chunks_do_not_matter(program, [(4, 5)])


def test_a_sequence_that_sees_another_is_caught() -> None:
    text = source([], ["x0"], [], ["h = x0 + x0[0]", 'return {"h": h}'])
    program = Program(text, "float32", {"x0": (3, 5, 4)}, ({},), batch=3)
    with pytest.raises(AssertionError, match="sequence 1, call 0, h has other bits in a batch"):
        properties.a_batch_is_its_sequences(program)


def test_infinities_that_a_graph_means_leave_the_other_elements_their_bound() -> None:
    body = ["h = F.log(x0)", "k = h + x0", 'return {"k": k}']
    program = Program(source([], ["x0"], [], body), "float32", {"x0": (2, 3)}, ({},), "zeros")
    expected = program.case().expected[0]["k"]
    assert np.isneginf(expected.nearest).any()
    assert np.isfinite(expected.nearest).any()
    assert (expected.magnitude < 2e-6).all()
    properties.means_what_it_says(program)


def test_what_has_no_bound_is_excused_wherever_it_is() -> None:
    """A norm of zeros may be a little more than zero, whose logarithm is a number."""
    body = ["h = F.log(F.rms_norm(x0, 3))", 'return {"h": h}']
    program = Program(source([], ["x0"], [], body), "float32", {"x0": (2, 3)}, ({},), "zeros")
    assert np.isinf(program.case().expected[0]["h"].magnitude).all()
    properties.means_what_it_says(program)


def test_bits_differ_by_the_sign_of_zero_and_not_by_a_nan() -> None:
    assert not same_bits(np.float32([0.0]), np.float32([-0.0]))
    assert same_bits(np.array([np.nan], BFLOAT16), np.array([-np.nan], BFLOAT16))


def test_the_command_checks_drawn_graphs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", "--random", "3", "--seed", "5", "--scripts", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "3 drawn graphs of seed 5: nothing failed\n"
    assert not list(tmp_path.iterdir())
    assert main(["conformance", "--random", "0"]) == 1
