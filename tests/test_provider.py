"""The execution provider: claims, programs, states in place, errors."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnx_iron
from onnx_iron.operators.base import DOMAIN, OPERATORS
from onnx_iron.operators.body import Body, function
from onnx_iron.provider import claim, get_ep_name, get_ep_names, get_library_path, planner
from onnx_iron.provider.graph import Node
from onnx_iron.provider.library import programs_compiled

EP = "IronExecutionProvider"
BF16 = ml_dtypes.bfloat16
DTYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(BF16): TensorProto.BFLOAT16,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL,
}


def spec(name: str, shape: Sequence[int | str], dtype: Any = np.float32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, DTYPES[np.dtype(dtype)], shape)


def constant(name: str, array: Any) -> onnx.TensorProto:
    array = np.asarray(array)
    return helper.make_tensor(name, DTYPES[array.dtype], array.shape, array.tobytes(), raw=True)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A standard node named after its first output."""
    made = outputs.split()
    names = [name if name != "-" else "" for name in inputs.split()]
    return helper.make_node(op_type, names, made, name=made[0], **attributes)


def iron_node(
    op_type: str, inputs: str, outputs: str, shapes: dict[str, tuple[int, ...]], **attributes: Any
) -> tuple[onnx.NodeProto, onnx.FunctionProto]:
    """A node of the domain and its function body, for inputs of the given shapes by name."""
    op = OPERATORS[op_type].from_attributes(attributes)
    given = [name if name in shapes else None for name in (i.name for i in op.inputs)]
    while given and given[-1] is None:
        given.pop()
    body = Body(shapes, op.attributes())
    made = op.body(body, *given)
    overload = outputs.split()[0]
    declared = function(
        DOMAIN,
        op_type,
        overload,
        [name or f"omitted_{i}" for i, name in enumerate(given)],
        made if isinstance(made, tuple) else (made,),
        body,
        op.attributes(),
        21,
    )
    made_node = node(op_type, inputs, outputs, **op.attributes())
    made_node.domain, made_node.overload = DOMAIN, overload
    return made_node, declared


def model(
    nodes: Sequence[Any],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
    name: str = "graph",
) -> bytes:
    """A model of nodes, some with their function."""
    plain = [n if isinstance(n, onnx.NodeProto) else n[0] for n in nodes]
    functions = [n[1] for n in nodes if not isinstance(n, onnx.NodeProto)]
    graph = helper.make_graph(plain, name, inputs, outputs, constants)
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)],
        functions=functions,
        ir_version=10,
    )
    result: bytes = made.SerializeToString()
    return result


def iron(serialized: bytes, *, record: bool = True, **options: str) -> ort.InferenceSession:
    session_options = ort.SessionOptions()
    if record:
        session_options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return open_by_device(serialized, session_options, options)


def open_by_device(
    serialized: bytes, session_options: ort.SessionOptions, options: dict[str, str]
) -> ort.InferenceSession:
    onnx_iron.register()
    devices = [device for device in ort.get_ep_devices() if device.ep_name == EP]
    session_options.add_provider_for_devices(devices, options)
    return ort.InferenceSession(serialized, session_options)


def open_by_name(
    serialized: bytes, session_options: ort.SessionOptions, options: dict[str, str]
) -> ort.InferenceSession:
    onnx_iron.register()
    if EP not in ort.get_available_providers():
        pytest.skip("onnxruntime 1.24 knows no plugin by its name")
    return ort.InferenceSession(
        serialized,
        session_options,
        providers=[EP, "CPUExecutionProvider"],
        provider_options=[options, {}],
    )


WAYS = (open_by_device, open_by_name)


def stock(serialized: bytes) -> ort.InferenceSession:
    return ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])


def groups(session: ort.InferenceSession) -> list[list[str]]:
    """The names of the nodes in each of our groups."""
    return [
        sorted(n.name for n in group.get_nodes())
        for group in session.get_provider_graph_assignment_info()
        if group.ep_name == EP
    ]


def rand(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def add_model(*nodes: Any, **more: Any) -> bytes:
    """From x (2, 8) to z (2, 8)."""
    return model(nodes, [spec("x", (2, 8))], [spec("z", (2, 8))], **more)


def bind(
    session: ort.InferenceSession, inputs: dict[str, Any], outputs: dict[str, Any]
) -> ort.IOBinding:
    """Bind arrays; equal arrays are one buffer."""
    binding = session.io_binding()
    for call, arrays in ((binding.bind_input, inputs), (binding.bind_output, outputs)):
        for name, array in arrays.items():
            dtype = DTYPES[array.dtype]
            call(name, "cpu", 0, dtype, list(array.shape), array.ctypes.data)
    return binding


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
    from onnx_iron.provider import options

    monkeypatch.setattr(options, "_warned", False)
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
        node("Cos", "a", "c"),
        node("Mul", "a x", "b"),
        node("Add", "b c", "z"),
    )
    session = iron(serialized)
    assert groups(session) == [["a", "b"], ["z"]]
    x = rand(2, 8)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], np.cos(x + x) + (x + x) * x, rtol=1e-5, atol=1e-6
    )


def test_two_groups_that_feed_each_other_are_split() -> None:
    # Each of the chains alone could be one group around the other's unsupported node.
    serialized = add_model(
        node("Add", "x x", "a1"),
        node("Mul", "x x", "b1"),
        node("Cos", "a1", "ca"),
        node("Sin", "b1", "cb"),
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
        DOMAIN, "Twice", ["x"], ["y"], [node("Cos", "x", "y")], [helper.make_opsetid("", 21)]
    )
    twice = node("Twice", "a", "t")
    twice.domain = DOMAIN
    serialized = add_model(node("Add", "x x", "a"), (twice, body), node("Add", "t a", "z"))
    session = iron(serialized)
    x = rand(2, 8)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], np.cos(x + x) + (x + x), rtol=1e-5, atol=1e-6
    )
    report = onnx_iron.placement(session)
    assert not report.complete
    assert "no operator Twice in onnx_iron 1; known: Add, Attention" in str(report)


def test_an_unknown_operator_without_a_body_is_named() -> None:
    unknown = node("Twice", "x", "z")
    unknown.domain = DOMAIN
    with pytest.raises(Exception, match="onnx_iron:Twice"):
        iron(add_model(unknown))


def test_a_node_that_the_operator_refuses_is_left_with_its_reason() -> None:
    serialized = model(
        [node("Softmax", "x", "z", axis=0)], [spec("x", (2, 8))], [spec("z", (2, 8))]
    )
    report = onnx_iron.placement(iron(serialized))
    assert [row.provider for row in report.rows] == ["CPUExecutionProvider"]
    assert report.rows[0].reason == "axis is 0, the kernel has the last one, 1"


def test_placement_without_onnxruntimes_record() -> None:
    serialized = add_model(node("Add", "x x", "a"), node("Cos", "a", "z"), name="unrecorded")
    report = onnx_iron.placement(iron(serialized, record=False))
    assert [(row.op_type, row.provider) for row in report.rows] == [
        ("Add", EP),
        ("Cos", "another provider"),
    ]
    assert report.to_dict()["counts"] == {
        f"{EP} cpu": 1,
        "another provider not known": 1,
    }
    assert "1 Cos left: there is no kernel for it" in str(report)
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


# -- standard operators ---------------------------------------------------------------------

I64 = np.int64
FLOAT_CASES: list[tuple[str, list[Any], list[Any], dict[str, Any]]] = [
    *((op, [(3, 4), (4,)], [], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    ("Max", [(3, 4), (4,), (2, 1, 1)], [], {}),
    *((op, [(3, 5)], [], {}) for op in ("Sigmoid", "Tanh", "Relu", "Exp", "Erf", "Neg", "Abs")),
    ("Reciprocal", [(7,)], [], {}),
    ("Softmax", [(2, 3, 5)], [], {"axis": 2}),
    ("Gelu", [(3, 5)], [], {"approximate": "tanh"}),
    ("Gelu", [(3, 5)], [], {}),
    ("MatMul", [(4, 6), (6, 3)], [], {}),
    ("MatMul", [(2, 1, 4, 6), (3, 6, 5)], [], {}),
    ("MatMul", [(6,), (6, 3)], [], {}),
    ("MatMul", [(2, 4, 6), (6,)], [], {}),
    ("Gemm", [(4, 6), (6, 3), (3,)], [], {}),
    ("Gemm", [(6, 4), (3, 6), (4, 1)], [], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [(4, 6), (6, 3)], [], {"alpha": 0.25}),
    ("Transpose", [(2, 3, 4)], [], {"perm": [2, 0, 1]}),
    ("Transpose", [(2, 3)], [], {}),
    ("Transpose", [(2, 1, 3)], [], {"perm": [1, 0, 2]}),
    ("Concat", [(2, 3), (2, 1)], [], {"axis": -1}),
    ("Reshape", [(4, 6)], [np.array([0, -1, 2], I64)], {}),
    ("Squeeze", [(1, 4, 1)], [np.array([-1], I64)], {}),
    ("Squeeze", [(1, 4, 1)], [], {}),
    ("Unsqueeze", [(4, 2)], [np.array([0, -1], I64)], {}),
    ("Flatten", [(2, 3, 4)], [], {"axis": 2}),
    ("Flatten", [(2, 3, 4)], [], {"axis": 0}),
    ("Slice", [(6, 4)], [np.array([1], I64), np.array([4], I64)], {}),
    ("Slice", [(6, 4)], [np.array(v, I64) for v in ([-1, 0], [-9, 3], [0, 1], [-2, 1])], {}),
    ("Slice", [(1, 6, 4)], [np.array(v, I64) for v in ([2], [99], [1])], {}),
    ("Slice", [(6, 4)], [np.array(v, I64) for v in ([5], [5], [0])], {}),
    ("Gather", [(5, 4)], [np.array([[4, -1], [0, 2]], I64)], {}),
    ("Gather", [(5, 4)], [np.array(-2, np.int32)], {"axis": 1}),
    ("ReduceMean", [(3, 5)], [np.array([-1], I64)], {}),
    ("ReduceSum", [(3, 5)], [np.array([1], I64)], {"keepdims": 0}),
    ("ReduceSum", [(7,)], [], {}),
    ("ReduceSum", [(3, 5)], [], {"noop_with_empty_axes": 1}),
    ("LayerNormalization", [(3, 8), (8,)], [], {"epsilon": 1e-3}),
    ("LayerNormalization", [(2, 3, 8), (8,), (8,)], [], {}),
    ("Identity", [(3, 2)], [], {}),
    ("Shape", [(3, 2, 5)], [], {"start": 1}),
]


def case_name(case: Any) -> str:
    op, shapes, constants, attributes = case
    return f"{op} {shapes} {[c.tolist() for c in constants]} {attributes}"


def case_model(case: Any, dtype: Any) -> tuple[bytes, dict[str, Any]]:
    """A model of one node between two adds of zero, which keep it from being folded away."""
    op, shapes, constants, attributes = case
    given = {f"x{i}": rand(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)}
    kept = {f"c{i}": array for i, array in enumerate(constants)}
    nodes = [node("Add", f"{name} zero", f"{name}.z") for name in given]
    nodes.append(node(op, " ".join([*(f"{n}.z" for n in given), *kept]), "y", **attributes))
    float_dtype = DTYPES[np.dtype(dtype)]
    out = helper.make_tensor_value_info(
        "y", float_dtype if op != "Shape" else TensorProto.INT64, None
    )
    initializers = [constant("zero", np.zeros((), dtype))]
    initializers += [constant(name, array) for name, array in kept.items()]
    inputs = [spec(name, array.shape, dtype) for name, array in given.items()]
    return model(nodes, inputs, [out], initializers), given


@pytest.mark.parametrize("case", FLOAT_CASES, ids=case_name)
def test_a_standard_operator_gives_what_stock_onnxruntime_gives(case: Any) -> None:
    serialized, given = case_model(case, np.float32)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    expected = stock(serialized).run(None, given)[0]
    result = session.run(None, given)[0]
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def run_bf16(session: ort.InferenceSession, given: dict[str, Any]) -> np.ndarray[Any, Any]:
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TensorProto.BFLOAT16)
        for name, array in given.items()
    }
    made = session.run_with_ort_values(None, values)[0]
    raw = ctypes.string_at(made.data_ptr(), int(np.prod(made.shape())) * 2)
    return np.frombuffer(raw, BF16).reshape(made.shape())


@pytest.mark.parametrize("case", [c for c in FLOAT_CASES if c[0] != "Shape"], ids=case_name)
def test_a_standard_operator_in_bfloat16_is_its_float32_rounded(case: Any) -> None:
    serialized, given = case_model(case, BF16)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    wide, _ = case_model(case, np.float32)
    inputs = {name: array.astype(np.float32) for name, array in given.items()}
    expected = stock(wide).run(None, inputs)[0]
    result = run_bf16(session, given).astype(np.float32)
    # Two roundings of a sum where a bias or a factor is a step of its own, one elsewhere.
    np.testing.assert_allclose(result, expected, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"])
def test_integer_arithmetic_is_stock_onnxruntimes(op: str, dtype: Any) -> None:
    serialized = model(
        [node(op, "x y", "z")],
        [spec("x", (6, 1), dtype), spec("y", (5,), dtype)],
        [spec("z", (6, 5), dtype)],
    )
    given = {
        "x": np.array([-7, -6, -1, 0, 5, 7], dtype)[:, None],
        "y": np.array([-3, -2, 1, 2, 3], dtype),
    }
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    np.testing.assert_array_equal(
        session.run(None, given)[0], stock(serialized).run(None, given)[0]
    )


@pytest.mark.parametrize("source", [np.float32, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("target", [np.float32, np.int32, np.int64, np.bool_])
def test_casts_are_stock_onnxruntimes(source: Any, target: Any) -> None:
    numbers = np.array([-2, -1, 0, 1, 3, 100]).astype(source)
    numbers[1] *= numbers.dtype.type(1.5) if source is np.float32 else numbers.dtype.type(1)
    serialized = model(
        [node("Cast", "x", "y", to=DTYPES[np.dtype(target)])],
        [spec("x", (6,), source)],
        [spec("y", (6,), target)],
    )
    session = iron(serialized)
    np.testing.assert_array_equal(
        session.run(None, {"x": numbers})[0], stock(serialized).run(None, {"x": numbers})[0]
    )


def test_where_picks_by_a_condition() -> None:
    serialized = model(
        [node("Where", "c a b", "y")],
        [spec("c", (3, 1), np.bool_), spec("a", (4,)), spec("b", (3, 4))],
        [spec("y", (3, 4))],
    )
    given = {"c": np.array([[True], [False], [True]]), "a": rand(4), "b": rand(3, 4, seed=1)}
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    np.testing.assert_array_equal(
        session.run(None, given)[0], np.where(given["c"], given["a"], given["b"])
    )


# -- states in place ------------------------------------------------------------------------


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


def test_a_bad_per_call_value_names_the_node() -> None:
    session = iron(cache_model(node("Neg", "present.c", "y")))
    inputs = {"past.c": rand(8, 4), "src": rand(2, 4), "start": np.array(7, np.int32)}
    with pytest.raises(Exception, match=r"SliceScatter 'present\.c': start is 7"):
        session.run(None, inputs)


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
    import test_provider as t
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
    planner = t.planner
    planner._remove()
    try:
        t.iron(t.add_model(t.node("Add", "x x", "z")))
    except Exception as error:
        print(error)
    """
    )
    assert done.returncode == 0, done.stderr
    assert "there is no planner" in done.stdout
