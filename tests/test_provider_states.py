"""States in place on the execution provider, however their buffers are bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from provider_models import (
    bind,
    constant,
    iron,
    iron_node,
    model,
    node,
    open_by_device,
    rand,
    spec,
    stock,
)

import onnx_iron

CACHE = {"x": (8, 4), "src": (2, 4), "start": (), "rows": ()}


def cache_model(*more: Any, outputs: Sequence[str] = ("y",)) -> bytes:
    """present.c is past.c with src written at start; more nodes make y (8, 4) from both."""
    return model(
        [
            iron_node(
                "SliceScatter",
                "past.c src start",
                "present.c",
                {k: CACHE[k] for k in ("x", "src", "start")},
            ),
            *more,
        ],
        [spec("past.c", (8, 4)), spec("src", (2, 4)), spec("start", (), np.int32)],
        [spec("present.c", (8, 4)), *(spec(name, (8, 4)) for name in outputs)],
    )


def run_cache(session: ort.InferenceSession, in_place: bool) -> dict[str, np.ndarray[Any, Any]]:
    past = rand(8, 4, seed=1)
    outputs = {item.name: np.full((8, 4), np.nan, np.float32) for item in session.get_outputs()}
    if in_place:
        outputs["present.c"] = past
    inputs = {"past.c": past, "src": rand(2, 4, seed=2), "start": np.array(3, np.int32)}
    session.run_with_iobinding(bind(session, inputs, outputs))
    return {name: array.copy() for name, array in outputs.items()}


@pytest.mark.parametrize(
    "readers",
    [
        (node("Add", "past.c past.c", "y"),),  # the old contents, without waiting for the new
        (node("Add", "present.c present.c", "y"),),  # the new
        (node("Add", "past.c present.c", "y"),),  # both: the old can't come first
        (node("Neg", "past.c", "n"), node("Mul", "n present.c", "m"), node("Add", "m n", "y")),
    ],
)
def test_a_state_in_place_gives_the_same_bits(readers: Any) -> None:
    serialized = cache_model(*readers)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    apart, together = run_cache(session, False), run_cache(session, True)
    expected = run_cache(stock(serialized), False)
    for name, array in expected.items():
        np.testing.assert_array_equal(apart[name], array)
        np.testing.assert_array_equal(together[name], array)


def test_a_state_written_twice_stays_in_place() -> None:
    shapes = {k: CACHE[k] for k in ("x", "src", "start")}
    serialized = model(
        [
            iron_node("SliceScatter", "past.c src start", "c1", shapes),
            node("Add", "start one", "next"),
            iron_node("SliceScatter", "c1 src next", "c2", shapes),
            node("Add", "c1 c2", "y"),
            iron_node("SliceScatter", "c2 src zero", "present.c", shapes),
        ],
        [spec("past.c", (8, 4)), spec("src", (2, 4)), spec("start", (), np.int32)],
        [spec("present.c", (8, 4)), spec("y", (8, 4))],
        [constant("one", np.array(2, np.int32)), constant("zero", np.array(0, np.int32))],
    )
    session = iron(serialized)
    apart, together = run_cache(session, False), run_cache(session, True)
    expected = run_cache(stock(serialized), False)
    for name, array in expected.items():
        np.testing.assert_array_equal(apart[name], array)
        np.testing.assert_array_equal(together[name], array)


def test_outputs_that_overlap_an_input_in_any_way_are_safe() -> None:
    serialized = model(
        [
            node("Add", "a b", "p"),
            node("Mul", "a p", "q"),
            node("Transpose", "a", "t", perm=[1, 0]),
        ],
        [spec("a", (4, 4)), spec("b", (4, 4))],
        [spec("p", (4, 4)), spec("q", (4, 4)), spec("t", (4, 4))],
    )
    session = iron(serialized)
    a, b = rand(4, 4, seed=1), rand(4, 4, seed=2)
    expected = {"p": a + b, "q": a * (a + b), "t": a.T}
    for name in expected:
        for shift in (0, 4, 8):
            memory = np.zeros(64, np.float32)
            memory[8:24] = a.reshape(-1)
            given = {"a": memory[8:24].reshape(4, 4), "b": b}
            made = {n: np.full((4, 4), np.nan, np.float32) for n in expected}
            made[name] = memory[8 + shift : 24 + shift].reshape(4, 4)
            session.run_with_iobinding(bind(session, given, made))
            for output, array in expected.items():
                np.testing.assert_array_equal(made[output], array, err_msg=f"{name}+{shift}")


@pytest.mark.parametrize("first", ["p", "q"])
def test_two_outputs_may_lie_in_one_inputs_memory(first: str) -> None:
    """Each is made of the half that the other takes, so both have to wait."""
    steps = {
        "p": [node("Slice", "x two four zero", "high"), node("Neg", "high", "p")],
        "q": [node("Slice", "x zero two zero", "low"), node("Abs", "low", "q")],
    }
    second = "q" if first == "p" else "p"
    serialized = model(
        [*steps[first], *steps[second]],
        [spec("x", (4, 4))],
        [spec("p", (2, 4)), spec("q", (2, 4))],
        [constant(name, np.array([n])) for name, n in (("zero", 0), ("two", 2), ("four", 4))],
    )
    session = iron(serialized)
    x = -rand(4, 4)
    memory = x.copy()
    made = {"p": memory[:2], "q": memory[2:]}
    session.run_with_iobinding(bind(session, {"x": memory}, made))
    np.testing.assert_array_equal(made["p"], -x[2:])
    np.testing.assert_array_equal(made["q"], np.abs(x[:2]))


def test_outputs_that_share_memory_are_refused() -> None:
    serialized = model(
        [node("Add", "x x", "p"), node("Mul", "x x", "q")],
        [spec("x", (4, 4))],
        [spec("p", (4, 4)), spec("q", (4, 4))],
    )
    session = iron(serialized)
    memory = np.zeros(20, np.float32)
    made = {"p": memory[:16].reshape(4, 4), "q": memory[4:].reshape(4, 4)}
    with pytest.raises(Exception, match="outputs 0 and 1 share memory"):
        session.run_with_iobinding(bind(session, {"x": rand(4, 4)}, made))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_give_stock_bits_however_their_buffers_are_bound(seed: int) -> None:
    """Elementwise, views, transposes and state writes in random graphs, some outputs bound over
    some inputs."""
    rng = np.random.default_rng(seed)
    names = ["i0", "i1", "i2"]
    nodes: list[Any] = []
    for index in range(12):
        name, a, b = f"v{index}", rng.choice(names), rng.choice(names)
        kind = rng.integers(0, 6)
        if kind == 0:
            nodes.append(node("Transpose", a, name, perm=[1, 0]))
        elif kind == 1:
            nodes.append(node("Slice", f"{a} s2 s4 s0", f"{name}.h"))
            nodes.append(
                iron_node(
                    "SliceScatter",
                    f"{b} {name}.h start",
                    name,
                    {"x": (4, 4), "src": (2, 4), "start": ()},
                )
            )
        elif kind == 2:
            nodes.append(node("Reshape", f"{a} flat", f"{name}.f"))
            nodes.append(node("Reshape", f"{name}.f square", name))
        elif kind == 3:
            nodes.append(node("Identity", a, name))
        else:
            nodes.append(node(["Sub", "Max"][kind - 4], f"{a} {b}", name))
        names.append(name)
    outputs = [f"v{i}" for i in sorted(rng.choice(12, 4, replace=False))]
    serialized = model(
        nodes,
        [*(spec(f"i{i}", (4, 4)) for i in range(3)), spec("start", (), np.int32)],
        [spec(name, (4, 4)) for name in outputs],
        [
            constant(n, np.array(v, np.int64))
            for n, v in (("s2", [2]), ("s4", [4]), ("s0", [0]), ("flat", [16]), ("square", [4, 4]))
        ],
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = open_by_device(serialized, options, {})
    used = {item.name for item in session.get_inputs()}
    given = {f"i{i}": rand(4, 4, seed=seed * 3 + i) for i in range(3)}
    given["start"] = np.array(1, np.int32)
    expected = stock(serialized).run(outputs, {n: a for n, a in given.items() if n in used})
    for _ in range(4):
        inputs = {name: array.copy() for name, array in given.items() if name in used}
        made = {name: np.full((4, 4), np.nan, np.float32) for name in outputs}
        for source, target in zip(["i0", "i1", "i2"], rng.permutation(outputs), strict=False):
            if source in inputs and rng.random() < 0.7:
                made[target] = inputs[source]
        session.run_with_iobinding(bind(session, inputs, made))
        for name, array in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(made[name], array, err_msg=name)


def test_a_bad_per_call_value_names_the_node() -> None:
    session = iron(cache_model(node("Neg", "present.c", "y")))
    inputs = {"past.c": rand(8, 4), "src": rand(2, 4), "start": np.array(7, np.int32)}
    with pytest.raises(Exception, match=r"SliceScatter 'present\.c': start is 7"):
        session.run(None, inputs)


def test_each_call_writes_to_the_outputs_that_it_is_given() -> None:
    serialized = model([node("Neg", "x", "y")], [spec("x", (4, 8))], [spec("y", (4, 8))])
    session, x = iron(serialized), rand(4, 8)
    first, second = np.zeros_like(x), np.zeros_like(x)
    session.run_with_iobinding(bind(session, {"x": x}, {"y": first}))
    before = x.copy()
    x += 1
    session.run_with_iobinding(bind(session, {"x": x}, {"y": second}))
    np.testing.assert_array_equal(first, -before)
    np.testing.assert_array_equal(second, -x)
