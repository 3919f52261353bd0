"""Outputs that take an input's bytes: where that is right, and where it is not done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from provider_models import bind, constant, iron, iron_node, model, node, rand, spec

from onnx_iron.dtypes import FLOAT32, Spec
from onnx_iron.operators import OPERATORS
from onnx_iron.provider.arena import plan_arena
from onnx_iron.provider.in_place import candidates
from onnx_iron.provider.lowering import KernelCall, Lowering, View
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.schedule import Schedule, schedule

CUT = [constant(name, np.array([value], np.int64)) for name, value in (("s", 0), ("e", 1))]


@pytest.mark.parametrize("kind", ["row of itself", "column of itself", "mask"])
def test_a_value_and_a_broadcast_view_of_it_are_not_overwritten_while_read(kind: str) -> None:
    axis = 1 if kind == "column of itself" else 0
    serialized = model(
        [
            node("Mul", "x x", "h"),
            node("Slice", "h s e axis", "part"),
            node("Max" if kind == "mask" else "Add", "h part", "k"),
            node("Mul", "k k", "y"),
        ],
        [spec("x", (5, 40))],
        [spec("y", (5, 40))],
        [*CUT, constant("axis", np.array([axis], np.int64))],
    )
    x = rand(5, 40)
    h = x * x
    part = h[:, :1] if axis else h[:1]
    want = (np.maximum(h, part) if kind == "mask" else h + part) ** 2
    np.testing.assert_array_equal(iron(serialized).run(None, {"x": x})[0], want)


def bound_in_place(serialized: bytes, x: Any, output: str) -> Any:
    """What an output is when it is bound to the buffer of input x."""
    buffer = x.copy()
    session = iron(serialized)
    made = {item.name: np.full(item.shape, np.nan, np.float32) for item in session.get_outputs()}
    made[output] = buffer
    session.run_with_iobinding(bind(session, {"x": buffer}, made))
    return made


def test_an_input_that_a_broadcast_view_of_it_meets_may_be_the_outputs_buffer() -> None:
    serialized = model(
        [node("Slice", "x s e axis", "row"), node("Add", "x row", "y")],
        [spec("x", (5, 40))],
        [spec("y", (5, 40))],
        [*CUT, constant("axis", np.array([0], np.int64))],
    )
    x = rand(5, 40)
    np.testing.assert_array_equal(bound_in_place(serialized, x, "y")["y"], x + x[:1])


def test_later_readers_of_an_input_see_its_old_contents() -> None:
    serialized = model(
        [
            node("Neg", "x", "y"),
            node("Exp", "x", "e"),
            node("Abs", "e", "a"),
            node("Add", "a x", "z"),
        ],
        [spec("x", (4, 8))],
        [spec("y", (4, 8)), spec("z", (4, 8))],
    )
    x = rand(4, 8)
    made = bound_in_place(serialized, x, "y")
    np.testing.assert_array_equal(made["y"], -x)
    np.testing.assert_allclose(made["z"], np.exp(x) + x, rtol=1e-6)


def test_a_transpose_is_never_in_place() -> None:
    serialized = model(
        [node("Transpose", "x", "y", perm=[1, 0])], [spec("x", (8, 8))], [spec("y", (8, 8))]
    )
    x = rand(8, 8)
    np.testing.assert_array_equal(bound_in_place(serialized, x, "y")["y"], x.T)


def test_an_update_keeps_what_others_read_of_the_state_before_it() -> None:
    shapes = {"x": (8, 4), "src": (2, 4), "start": ()}
    serialized = model(
        [
            iron_node("SliceScatter", "x src one", "y", shapes),
            iron_node("SliceScatter", "x src three", "other", shapes),
            node("Add", "y other", "z"),
        ],
        [spec("x", (8, 4))],
        [spec("y", (8, 4)), spec("z", (8, 4))],
        [
            constant("src", rand(2, 4, seed=1)),
            constant("one", np.array(1, np.int32)),
            constant("three", np.array(3, np.int32)),
        ],
    )
    x = rand(8, 4)
    y, other = x.copy(), x.copy()
    y[1:3] = other[3:5] = rand(2, 4, seed=1)
    made = bound_in_place(serialized, x, "y")
    np.testing.assert_array_equal(made["y"], y)
    np.testing.assert_array_equal(made["z"], y + other)


# -- the plan itself ------------------------------------------------------------------------


def operator(name: str) -> Operator:
    """An operator of ours, or a standard one's kernel."""
    if name in OPERATORS:
        return OPERATORS[name].from_attributes({})
    return standard(name, elementwise=name in ("Exp", "Neg"))


def lowered(steps: list[tuple[str, str, str]], views: dict[str, str] | None = None) -> Lowering:
    """Steps by operator, inputs and output, of float32 values (4, 8), and views of their halves."""
    made = Lowering()
    for op, inputs, output in steps:
        made.steps.append(KernelCall(output, operator(op), [*inputs.split()], [output]))
        for name in (*inputs.split(), output):
            made.specs.setdefault(name, Spec((4, 8), FLOAT32))
    for name, base in (views or {}).items():
        made.views[name] = View(base, 0)
        made.specs[name] = Spec((2, 8), FLOAT32)
    return made


def planned(lowering: Lowering, inputs: str, outputs: str) -> Schedule:
    names = inputs.split()
    return schedule(lowering, names, [False] * len(names), outputs.split())


def ran(plan: Schedule) -> list[str]:
    return [step.name for step in plan.steps]


def test_the_writer_over_an_input_is_put_behind_its_readers() -> None:
    plan = planned(lowered([("Neg", "x", "y"), ("Exp", "x", "e"), ("Add", "e x", "z")]), "x", "y z")
    # y could be in place, and so could z: whoever comes first has it.
    assert plan.pairs == [(0, 0)]
    assert ran(plan) == ["e", "z", "y"]


def test_a_reader_that_needs_the_writers_result_keeps_it_from_the_input() -> None:
    plan = planned(lowered([("Neg", "x", "y"), ("MatMul", "y x", "z")]), "x", "y z")
    assert plan.pairs == []
    assert ran(plan) == ["y", "z"]


def test_an_output_of_another_size_than_the_input_is_no_pair() -> None:
    lowering = lowered([("Neg", "half", "y")], {"half": "x"})
    lowering.specs["x"] = Spec((4, 8), FLOAT32)
    lowering.specs["y"] = Spec((2, 8), FLOAT32)
    assert planned(lowering, "x", "y").pairs == []


def test_a_value_that_is_read_again_keeps_its_bytes() -> None:
    steps = [("Exp", "x", "a"), ("Neg", "a", "b"), ("Exp", "b", "c"), ("Add", "a c", "d")]
    lowering = lowered(steps)
    offsets = plan_arena(lowering, lowering.steps, ())
    assert offsets["b"] != offsets["a"] != offsets["c"]
    assert offsets["b"] == offsets["c"]  # it dies where c is made, element by element


def test_bytes_that_a_value_took_over_are_kept_as_long_as_it_lives() -> None:
    steps = [("Exp", "x", "a"), ("Neg", "a", "b"), ("Exp", "x", "c"), ("MatMul", "b c", "d")]
    lowering = lowered(steps)
    offsets = plan_arena(lowering, lowering.steps, ())
    assert offsets["a"] == offsets["b"] != offsets["c"]


@pytest.mark.parametrize("seed", range(150))
def test_whatever_is_written_over_an_input_comes_after_all_who_read_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [f"x{number}" for number in range(int(rng.integers(1, 4)))]
    inputs, steps = list(values), []
    for index in range(int(rng.integers(3, 12))):
        op = str(rng.choice(["Neg", "Exp", "Add", "MatMul"]))
        count = 2 if op in ("Add", "MatMul") else 1
        steps.append((op, " ".join(rng.choice(values, count)), f"v{index}"))
        values.append(f"v{index}")
    made = [output for *_, output in steps]
    outputs = [name for name in made if rng.random() < 0.6] or made[-1:]
    plan = planned(lowered(steps), " ".join(inputs), " ".join(outputs))
    assert_read_before_written(plan, inputs)


def test_a_reader_that_was_moved_is_waited_for_where_it_stands_now() -> None:
    # v0 comes behind v5 for the sake of a, and with it v1, which reads b.
    steps = [("Add", "b a", "v0"), ("Add", "v0 b", "v1"), ("Neg", "b", "v2"), ("Neg", "v1", "v3")]
    steps.append(("MatMul", "c a", "v5"))
    plan = planned(lowered(steps), "c a b", "v0 v2 v3 v5")
    assert (1, 0) in plan.pairs
    assert_read_before_written(plan, ["c", "a", "b"])


def assert_read_before_written(plan: Schedule, inputs: list[str]) -> None:
    """Steps come after those that they read, the writer over an input after its readers."""
    order = ran(plan)
    place = {name: number for number, name in enumerate(order)}
    for step in plan.steps:
        assert all(place[i] < place[step.name] for i in step.inputs if i in place)
    for given, output in plan.pairs:
        (writer,) = (place[root] for root, at in plan.placed.items() if at == output)
        readers = {place[step.name] for step in plan.steps if inputs[given] in step.inputs}
        assert max(readers) == writer, (given, output, order)


def test_a_part_of_a_dying_value_lends_no_bytes() -> None:
    lowering = lowered([("Exp", "x", "a"), ("Neg", "half", "b")], {"half": "a"})
    lowering.specs["b"] = Spec((2, 8), FLOAT32)
    assert plan_arena(lowering, lowering.steps, ())["b"] >= 4 * 8 * 4


@pytest.mark.parametrize("op", ["MatMul", "Transpose", "Concat", "Softmax", "RMSNorm"])
def test_only_elementwise_kernels_and_updates_write_over_an_input(op: str) -> None:
    lowering = lowered([(op, "x", "y")])
    assert candidates(lowering.steps[0], 0, lowering) == []


@pytest.mark.parametrize("seed", range(20))
def test_live_values_never_share_bytes_however_long_they_live(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lowering = Lowering(specs={"v0": Spec((16,), FLOAT32)})
    for index in range(1, 60):
        reads = [f"v{i}" for i in rng.integers(max(0, index - 8), index, 2)]
        lowering.specs[f"v{index}"] = Spec((int(rng.integers(1, 90)),), FLOAT32)
        lowering.steps.append(KernelCall(f"v{index}", standard("MatMul"), [*reads], [f"v{index}"]))
    offsets = plan_arena(lowering, lowering.steps, ())
    lives = {}
    for position, step in enumerate(lowering.steps):
        name = step.outputs[0]
        reads_at = [p for p, s in enumerate(lowering.steps) if name in s.inputs]
        begin = offsets[name]
        lives[name] = (position, max([position, *reads_at]), begin, lowering.specs[name].bytes)
    for name, (born, dies, begin, size) in lives.items():
        for other, (born2, dies2, begin2, size2) in lives.items():
            apart = (
                dies < born2 or dies2 < born or begin + size <= begin2 or begin2 + size2 <= begin
            )
            assert name == other or apart, f"{name} and {other} share bytes"


def test_an_operand_that_broadcasts_lends_no_bytes() -> None:
    lowering = lowered([("Add", "x row", "y")])
    lowering.specs["row"] = Spec((8,), FLOAT32)
    assert candidates(lowering.steps[0], 0, lowering) == [0]


def test_an_update_takes_its_state_and_not_one_that_it_also_reads() -> None:
    apart, together = (
        lowered([("SliceScatter", "x src start", "y")]),
        lowered([("SliceScatter", "x x start", "y")]),
    )
    assert candidates(apart.steps[0], 0, apart) == [0]
    assert candidates(together.steps[0], 0, together) == []


def test_an_output_that_is_a_part_of_a_value_is_copied_into_its_buffer() -> None:
    lowering = lowered([("Exp", "x", "a")], {"half": "a"})
    plan = planned(lowering, "x", "half")
    assert [step.op.name for step in plan.steps] == ["Exp", "Copy"]
    assert "a" not in plan.placed
