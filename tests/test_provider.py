"""The execution provider: registration, options, claims, runs, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from provider_models import (
    BF16,
    DTYPES,
    EP,
    WAYS,
    add_model,
    constant,
    groups,
    iron,
    iron_node,
    model,
    node,
    rand,
    spec,
    stock,
)

import onnx_iron
from onnx_iron.operators.base import DOMAIN
from onnx_iron.provider import claim, get_ep_name, get_ep_names, get_library_path, planner
from onnx_iron.provider.graph import Node
from onnx_iron.provider.library import programs_compiled

# -- registration and options ---------------------------------------------------------------


def test_registration_happens_once() -> None:
    onnx_iron.register()
    onnx_iron.register()
    devices = [device for device in ort.get_ep_devices() if device.ep_name == EP]
    assert [str(device.device.type) for device in devices] == ["OrtHardwareDeviceType.CPU"]
    assert devices[0].ep_vendor == "onnx-iron"


def test_the_convention_of_plugin_providers_is_kept() -> None:
    assert Path(get_library_path()).is_absolute()
    assert get_ep_name() == EP
    assert get_ep_names() == [EP]


@pytest.mark.parametrize("way", WAYS)
def test_a_provider_is_asked_for_by_name_or_by_device(way: Any) -> None:
    serialized = add_model(node("Add", "x x", "y"), node("Mul", "y x", "z"))
    session = way(serialized, ort.SessionOptions(), {"device": "cpu"})
    assert session.get_providers() == [EP, "CPUExecutionProvider"]
    x = rand(2, 8)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], (x + x) * x)


@pytest.mark.usefixtures("without_npu")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"devise": "cpu"},
            r"unknown option 'devise', expected 'device', .*; did you mean 'device'",
        ),
        ({"device": "nup"}, r"option 'device' is 'nup', expected .* did you mean 'npu'"),
        ({"timeout_ms": "1s"}, "option 'timeout_ms' is '1s', expected milliseconds"),
        ({"device": "npu"}, "device is 'npu', and there is no NPU to use: the machine has none"),
    ],
)
def test_a_bad_option_is_an_error_that_names_it(
    way: Any, options: dict[str, str], message: str
) -> None:
    serialized = add_model(node("Add", "x x", "z"))
    with pytest.raises(Exception, match=message):
        way(serialized, ort.SessionOptions(), options)


@pytest.mark.usefixtures("without_npu")
def test_npu_falls_back_to_the_cpu_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_iron.provider import option_checks, options

    monkeypatch.setattr(option_checks, "_warned", False)
    serialized = add_model(node("Add", "x x", "z"))
    with pytest.warns(options.FallbackWarning, match="the CPU runs the model"):
        session = iron(serialized, device="npu", fallback="cpu")
    assert "on IronExecutionProvider (cpu)" in str(onnx_iron.placement(session))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        iron(serialized, device="npu", fallback="cpu")


# -- claims ---------------------------------------------------------------------------------


def mixed_model(dtype: Any) -> bytes:
    """Function ops and standard ops; in bfloat16, stock onnxruntime has no kernel for most."""
    to = {"to": DTYPES[np.dtype(dtype)]}
    shapes = {"x": (4, 16), "weight": (16,)}
    return model(
        [
            node("Cast", "input", "x", **to),
            iron_node("RMSNorm", "x norm", "a", shapes, epsilon=1e-6),
            node("MatMul", "a w", "b"),
            iron_node("SiLU", "b", "c", {"x": (4, 8)}),
            node("Reshape", "c shape", "d"),
            node("Transpose", "d", "e", perm=[1, 0, 2]),
            node("Reshape", "e back", "f"),
            node("MatMul", "f v", "g"),
            node("Add", "g x", "h"),
            node("Softmax", "h", "i", axis=-1),
            node("Cast", "i", "output", to=TensorProto.FLOAT),
        ],
        [spec("input", (4, 16))],
        [spec("output", (4, 16))],
        [
            constant("norm", rand(16, seed=1, dtype=dtype)),
            constant("w", rand(16, 8, seed=2, dtype=dtype)),
            constant("v", rand(8, 16, seed=3, dtype=dtype)),
            constant("shape", np.array([4, 2, 4], np.int64)),
            constant("back", np.array([4, 8], np.int64)),
        ],
    )


def mixed_reference(x: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    def narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array.astype(dtype).astype(np.float32)

    x = narrow(x)
    norm, w, v = (
        rand(*shape, seed=seed, dtype=dtype).astype(np.float32)
        for shape, seed in (((16,), 1), ((16, 8), 2), ((8, 16), 3))
    )
    a = narrow(narrow(x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6)) * norm)
    b = narrow(a @ w)
    c = narrow(b / (1 + np.exp(-b)))
    f = c.reshape(4, 2, 4).transpose(1, 0, 2).reshape(4, 8)
    h = narrow(narrow(f @ v) + x)
    exponents = np.exp(h - h.max(-1, keepdims=True))
    return narrow(exponents / exponents.sum(-1, keepdims=True))


def test_a_float32_group_equals_stock_onnxruntime() -> None:
    serialized = mixed_model(np.float32)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    assert len(groups(session)) == 1
    x = rand(4, 16, seed=9)
    np.testing.assert_allclose(
        session.run(None, {"input": x})[0], stock(serialized).run(None, {"input": x})[0], rtol=2e-5
    )


def test_a_bfloat16_model_that_stock_onnxruntime_refuses_runs_whole() -> None:
    serialized = mixed_model(BF16)
    with pytest.raises(Exception, match="Could not find an implementation"):
        stock(serialized)
    session = iron(serialized)
    assert len(groups(session)) == 1
    x = rand(4, 16, seed=9)
    np.testing.assert_allclose(
        session.run(None, {"input": x})[0], mixed_reference(x, BF16), rtol=0.02
    )


def test_an_unsupported_node_between_two_groups_stays_outside() -> None:
    # x -> a -> cos -> b, and a -> b directly: a and b can't be one node.
    serialized = add_model(
        node("Add", "x x", "a"),
        node("Cosh", "a", "c"),
        node("Mul", "a x", "b"),
        node("Add", "b c", "z"),
    )
    session = iron(serialized)
    assert groups(session) == [["a", "b"], ["z"]]
    x = rand(2, 8)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], np.cosh(x + x) + (x + x) * x, rtol=1e-5, atol=1e-6
    )


def test_two_groups_that_feed_each_other_are_split() -> None:
    # Each of the chains alone could be one group around the other's unsupported node.
    serialized = add_model(
        node("Add", "x x", "a1"),
        node("Mul", "x x", "b1"),
        node("Cosh", "a1", "ca"),
        node("Sinh", "b1", "cb"),
        node("Add", "ca b1", "b2"),
        node("Mul", "cb a1", "a2"),
        node("Add", "a2 b2", "z"),
    )
    session = iron(serialized)
    x = rand(2, 8)
    expected = stock(serialized).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(30))
def test_random_groups_never_form_a_cycle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = []
    for index in range(20):
        reads = tuple(f"v{i}" for i in rng.integers(0, index, 2)) if index else ()
        nodes.append(Node(index, f"n{index}", "", "Op", 1, "", {}, reads, (), (f"v{index}",)))
    taken = {index for index in range(20) if rng.random() < 0.6}
    found = claim.group(nodes, taken)
    assert sorted(index for group in found for index in group) == sorted(taken)
    home = {index: number for number, group in enumerate(found) for index in group}
    edges = set()
    for n in nodes:
        for read in n.inputs:
            a, b = int(read[1:]), n.index
            edges.add((home.get(a, f"single{a}"), home.get(b, f"single{b}")))
    left = {end for edge in edges for end in edge}
    while left:  # peel off what nothing left points to
        free = {end for end in left if all(b != end or a == b or a not in left for a, b in edges)}
        assert free, "the groups form a cycle"
        left -= free


def test_a_declined_node_is_inlined_and_its_reason_kept() -> None:
    body = helper.make_function(
        DOMAIN, "Twice", ["x"], ["y"], [node("Cosh", "x", "y")], [helper.make_opsetid("", 21)]
    )
    twice = node("Twice", "a", "t")
    twice.domain = DOMAIN
    serialized = add_model(node("Add", "x x", "a"), (twice, body), node("Add", "t a", "z"))
    session = iron(serialized)
    x = rand(2, 8)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], np.cosh(x + x) + (x + x), rtol=1e-5, atol=1e-6
    )
    report = onnx_iron.placement(session)
    assert not report.complete
    assert "no operator Twice in onnx_iron 1; known: Abs, Add, ArgMax, Attention" in str(report)


def test_an_unknown_operator_without_a_body_is_named() -> None:
    unknown = node("Twice", "x", "z")
    unknown.domain = DOMAIN
    with pytest.raises(Exception, match="onnx_iron:Twice"):
        iron(add_model(unknown))


def test_a_node_that_the_operator_refuses_is_left_with_its_reason() -> None:
    serialized = model([node("Mod", "x x", "z", fmod=1)], [spec("x", (2, 8))], [spec("z", (2, 8))])
    report = onnx_iron.placement(iron(serialized))
    assert [row.provider for row in report.rows] == ["CPUExecutionProvider"]
    assert report.rows[0].reason == "Mod: a is float32, expected int32 or int64"


def test_placement_without_onnxruntimes_record() -> None:
    serialized = add_model(node("Add", "x x", "a"), node("Cosh", "a", "z"), name="unrecorded")
    report = onnx_iron.placement(iron(serialized, record=False))
    assert [(row.op_type, row.provider) for row in report.rows] == [
        ("Add", EP),
        ("Cosh", "another provider"),
    ]
    assert report.to_dict()["counts"] == {
        f"{EP} cpu": 1,
        "another provider not known": 1,
    }
    assert "1 Cosh left: there is no kernel for it" in str(report)
    with pytest.raises(LookupError, match="record_ep_graph_assignment_info"):
        onnx_iron.placement(stock(serialized))


def test_the_branches_of_an_if_are_left_alone() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(op, ["a", "x"], [name], name=f"{name}_node")],
            name,
            [],
            [spec(name, (2, 8))],
        )

    serialized = model(
        [
            node("Add", "x x", "a"),
            helper.make_node(
                "If",
                ["c"],
                ["i"],
                name="if",
                then_branch=branch("t", "Add"),
                else_branch=branch("e", "Mul"),
            ),
            node("Add", "i a", "z"),
        ],
        [spec("x", (2, 8)), spec("c", (), np.bool_)],
        [spec("z", (2, 8))],
    )
    session = iron(serialized)
    x = rand(2, 8)
    for flag, value in ((True, 2 * x + x), (False, 2 * x * x)):
        result = session.run(None, {"x": x, "c": np.array(flag)})[0]
        np.testing.assert_allclose(result, value + 2 * x, rtol=1e-5)


def test_names_may_hold_any_bytes() -> None:
    serialized = add_model(
        node("Add", "x x", 'q"\\\x01\u00e9\u4e2d'), node("Mul", 'q"\\\x01\u00e9\u4e2d x', "z")
    )
    broken = serialized.replace("\u00e9\u4e2d".encode(), b"\xff\xfe\xc3\xe4\xb8")
    x = rand(2, 8)
    for variant in (serialized, broken):
        np.testing.assert_array_equal(iron(variant).run(None, {"x": x})[0], (x + x) * x)


# -- runs -----------------------------------------------------------------------------------


def test_several_threads_run_one_session_at_once() -> None:
    session = iron(mixed_model(np.float32))
    inputs = [rand(4, 16, seed=seed) for seed in range(8)]
    expected = [session.run(None, {"input": x})[0] for x in inputs]
    wrong = []

    def work(number: int) -> None:
        for _ in range(200):
            if not np.array_equal(
                session.run(None, {"input": inputs[number]})[0], expected[number]
            ):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_is_compiled_once_for_each_set_of_shapes() -> None:
    serialized = model(
        [node("Add", "x w", "a"), node("Concat", "a x", "z", axis=0)],
        [spec("x", ("rows", 4))],
        [spec("z", ("twice", 4))],
        [constant("w", rand(4))],
    )
    before = programs_compiled()
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    assert programs_compiled() == before
    for count, rows in ((1, 3), (2, 5), (2, 3), (2, 5), (3, 1)):
        x = rand(rows, 4, seed=rows)
        z = session.run(None, {"x": x})[0]
        np.testing.assert_array_equal(z, np.concatenate([x + rand(4), x]))
        assert programs_compiled() == before + count


def test_a_nan_in_one_products_row_does_not_reach_the_next_product() -> None:
    # The second row is shorter, and both are widened in the same scratch.
    shapes = {"long": {"weight": (5, 32), "x": (32,)}, "short": {"weight": (5, 9), "x": (9,)}}
    given = {"a": rand(32) * np.float32(np.nan), "b": rand(9, seed=1)}
    weights = {"long": rand(5, 32, seed=2), "short": rand(5, 9, seed=3)}
    serialized = model(
        [
            iron_node("GEMV", "long a", "y", shapes["long"]),
            iron_node("GEMV", "short b", "z", shapes["short"]),
        ],
        [spec("a", (32,)), spec("b", (9,))],
        [spec("y", (5,)), spec("z", (5,))],
        [constant(name, weight) for name, weight in weights.items()],
    )
    session = iron(serialized)
    for _ in range(2):  # whichever of the two comes first
        y, z = session.run(None, given)
        assert np.isnan(y).all()
        np.testing.assert_allclose(z, weights["short"].astype(np.float64) @ given["b"], rtol=1e-5)


def test_static_shapes_are_compiled_when_the_session_opens() -> None:
    before = programs_compiled()
    session = iron(add_model(node("Add", "x x", "z")))
    assert programs_compiled() == before + 1
    session.run(None, {"x": rand(2, 8)})
    assert programs_compiled() == before + 1


def test_an_intermediate_whose_shape_the_model_states_wrongly_runs_as_on_stock() -> None:
    serialized = model(
        [node("NonZero", "x", "n"), node("Add", "n n", "a"), node("Neg", "a", "z")],
        [spec("x", (6,))],
        [spec("z", (1, 6), np.int64)],
    )
    loaded = onnx.load_from_string(serialized)
    loaded.graph.value_info.append(spec("n", (1, 6), np.int64))
    session = iron(loaded.SerializeToString())
    x = np.array([1, 0, 0, 1, 0, 0], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [[0, -6]])


def test_a_scalar_may_be_given_with_one_dimension_as_on_stock() -> None:
    serialized = model(
        [node("Add", "x k", "a"), node("Mul", "a k", "y")],
        [spec("x", (3,)), spec("k", ())],
        [spec("y", (3,))],
    )
    given = {"x": rand(3), "k": np.array([2], np.float32)}
    np.testing.assert_array_equal(
        iron(serialized).run(None, given)[0], stock(serialized).run(None, given)[0]
    )


def test_an_exception_in_the_planner_is_one_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: int, question: Any) -> None:
        raise KeyError("no such thing")

    for kind in ("open", "claim", "compile"):
        with monkeypatch.context() as patch:
            patch.setitem(planner.ANSWERS, kind, fail)
            with pytest.raises(Exception, match="KeyError: 'no such thing'"):
                iron(add_model(node("Add", "x x", "z")))


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )


SCRIPT = """
    import sys, threading
    sys.path.insert(0, "tests")
    import provider_models as t
    from onnx_iron.provider import planner
    import numpy as np
    session = t.iron(t.add_model(t.node("Add", "x x", "z")))
    binding = t.bind(session, {"x": t.rand(2, 8)}, {"z": np.zeros((2, 8), np.float32)})
"""


def test_a_session_may_be_alive_at_exit() -> None:
    done = run_script(SCRIPT + "    session.run_with_iobinding(binding)\n    print('end')")
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_without_the_planner_a_question_is_a_clean_error() -> None:
    done = run_script(
        SCRIPT
        + """
    planner._remove()
    try:
        t.iron(t.add_model(t.node("Add", "x x", "z")))
    except Exception as error:
        print(error)
    """
    )
    assert done.returncode == 0, done.stderr
    assert "there is no planner" in done.stdout


def test_a_library_that_somebody_else_registers_has_its_planner() -> None:
    done = run_script("""
    import sys
    sys.path.insert(0, "tests")
    import numpy as np, onnxruntime
    import onnx_iron.provider
    import provider_models as t
    path = onnx_iron.provider.get_library_path()
    onnxruntime.register_execution_provider_library("mine", path)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "IronExecutionProvider"]
    options.add_provider_for_devices(devices[:1], {})
    model = t.add_model(t.node("Add", "x x", "z"))
    session = onnxruntime.InferenceSession(model, options)
    print(session.run(None, {"x": np.full((2, 8), 3, np.float32)})[0][1, 7])
    """)
    assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr


def test_the_log_says_why_a_node_is_left_and_what_is_compiled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "onnx_iron")
    iron(add_model(node("Sinh", "x", "y"), node("Add", "x y", "z")), device="cpu")
    said = [record.getMessage() for record in caplog.records]
    assert any("Sinh" in text and "is left: there is no kernel for it" in text for text in said)
    assert any("1 of 2 nodes are taken, in 1 groups" in text for text in said)
    assert any(text.startswith("1 nodes compiled for the cpu: 1 calls of kernels") for text in said)


def test_onnxruntime_s_own_log_explains_a_placement_at_its_verbose_level() -> None:
    script = """
import onnxruntime as ort
from provider_models import add_model, node, open_by_device
options = ort.SessionOptions()
options.log_severity_level = 0
model = add_model(node("Sinh", "x", "y"), node("Add", "x y", "z"))
open_by_device(model, options, {"device": "cpu"})
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "is left: there is no kernel for it" in done.stderr
    assert "1 of 2 nodes are taken, in 1 groups" in done.stderr
    assert "1 nodes compiled for the cpu" in done.stderr
