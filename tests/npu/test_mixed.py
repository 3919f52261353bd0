"""Graphs of which the NPU runs some nodes and the host the others: every value arrives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npu_models import build_for
from onnx import TensorProto, helper

import onnx_iron
from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.provider.options import FallbackWarning

ROWS, WIDTH = 4, 64
BF16 = TensorProto.BFLOAT16

# Nodes from values of the graph; the NPU has the first three, the host the others.
NODES: dict[str, Callable[[str, str, str], list[onnx.NodeProto]]] = {
    "Add": lambda a, b, y: [helper.make_node("Add", [a, b], [y])],
    "Sub": lambda a, b, y: [helper.make_node("Sub", [a, b], [y])],
    "Mul": lambda a, b, y: [helper.make_node("Mul", [a, b], [y])],
    "Neg": lambda a, b, y: [helper.make_node("Neg", [a], [y])],
    "Max": lambda a, b, y: [helper.make_node("Max", [a, b], [y])],
    "Cast": lambda a, b, y: [
        helper.make_node("Cast", [a], [f"{y}.wide"], to=TensorProto.FLOAT),
        helper.make_node("Tanh", [f"{y}.wide"], [f"{y}.tanh"]),
        helper.make_node("Cast", [f"{y}.tanh"], [y], to=BF16),
    ],
    "Turn": lambda a, b, y: [
        helper.make_node("Transpose", [a], [f"{y}.turned"], perm=[1, 0]),
        helper.make_node("Transpose", [f"{y}.turned"], [y], perm=[1, 0]),
    ],
}


@st.composite
def graphs(draw: st.DrawFn) -> bytes:
    """Two inputs, a constant, up to twelve nodes, and some of the values as outputs."""
    values = ["x", "z", "weight"]
    nodes = []
    for number in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from(sorted(NODES)))
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        nodes += NODES[kind](a, b, f"v{number}")
        values.append(f"v{number}")
    outputs = sorted({values[-1], *draw(st.lists(st.sampled_from(values[3:]), max_size=3))})
    weight = np.linspace(-1, 1, ROWS * WIDTH).astype(BFLOAT16).reshape(ROWS, WIDTH)

    def port(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, BF16, [ROWS, WIDTH])

    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
    graph = helper.make_graph(
        nodes,
        "mixed",
        [port("x"), port("z")],
        [port(name) for name in outputs],
        [helper.make_tensor("weight", BF16, weight.shape, weight.tobytes(), raw=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    serialized: bytes = model.SerializeToString()
    return serialized


def recording() -> onnxruntime.SessionOptions:
    """Options of a session that records its placement: all these models have one name."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def results(path: Path, device: str, in_place: bool) -> tuple[list[Array], set[str]]:
    """The outputs, one of them written over input x where ``in_place``, and the nodes' devices."""
    onnx_iron.register()
    session = onnxruntime.InferenceSession(
        str(path),
        recording(),
        providers=["IronExecutionProvider", "CPUExecutionProvider"],
        provider_options=[{"device": device, "fallback": "cpu"}, {}],
    )
    devices = {row.device for row in onnx_iron.placement(session).rows}
    binding = session.io_binding()
    generator = np.random.default_rng(5)
    given = {
        item.name: generator.standard_normal((ROWS, WIDTH)).astype(BFLOAT16)
        for item in sorted(session.get_inputs(), key=lambda item: item.name)
    }
    made = [np.full((ROWS, WIDTH), np.nan, BFLOAT16) for _ in session.get_outputs()]
    if in_place and "x" in given:
        made[0] = given["x"]
    for name, array in given.items():
        binding.bind_input(name, "cpu", 0, BF16, list(array.shape), array.ctypes.data)
    for item, array in zip(session.get_outputs(), made, strict=True):
        binding.bind_output(item.name, "cpu", 0, BF16, list(array.shape), array.ctypes.data)
    session.run_with_iobinding(binding)
    return [array.astype(np.float32) for array in made], devices


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(serialized=graphs(), in_place=st.booleans())
def test_any_mixture_gives_the_cpus_bits(
    driver: Any, target: str, tmp_path: Path, serialized: bytes, in_place: bool
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(serialized)
    build_for(tmp_path, target)
    made, _ = results(path, "npu", in_place)
    expected, _ = results(path, "cpu", in_place)
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_open_shapes_are_planned_at_the_first_call(
    driver: Any, target: str, tmp_path: Path
) -> None:
    def port(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, BF16, ["rows", WIDTH])

    nodes = [helper.make_node("Add", ["x", "z"], ["y"], name="sum")]
    graph = helper.make_graph(nodes, "open", [port("x"), port("z")], [port("y")])
    opset = [helper.make_opsetid("", 21)]
    closed = helper.make_model(graph, opset_imports=opset, ir_version=10)
    for info in (*closed.graph.input, *closed.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = ROWS
    (tmp_path / "built").mkdir()
    onnx.save(closed, str(tmp_path / "built" / "model.onnx"))
    build_for(tmp_path / "built", target)
    for info in (*closed.graph.input, *closed.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(closed, str(tmp_path / "open.onnx"))
    onnx_iron.register()
    session = onnxruntime.InferenceSession(
        str(tmp_path / "open.onnx"),
        providers=["IronExecutionProvider", "CPUExecutionProvider"],
        provider_options=[{"device": "npu"}, {}],
    )

    def call(rows: int) -> Array:
        binding = session.io_binding()
        x, y = np.ones((rows, WIDTH), BFLOAT16), np.zeros((rows, WIDTH), BFLOAT16)
        for name in ("x", "z"):
            binding.bind_input(name, "cpu", 0, BF16, list(x.shape), x.ctypes.data)
        binding.bind_output("y", "cpu", 0, BF16, list(y.shape), y.ctypes.data)
        session.run_with_iobinding(binding)
        return y.astype(np.float32)

    before = driver.counters()["runs"]
    assert (call(ROWS) == 2).all()
    assert driver.counters()["runs"] == before + 1
    with pytest.raises(Exception, match="Add 'sum': its design is not built"):
        call(ROWS + 1)
    assert (call(ROWS) == 2).all()


@pytest.mark.parametrize("fault", ["context_lost", "error"])
def test_a_call_made_again_reads_its_inputs_as_they_were(
    driver: Any, target: str, tmp_path: Path, fault: str
) -> None:
    """The NPU squares x, the host writes n over it, and then the NPU fails at w."""

    def port(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, BF16, [ROWS, WIDTH])

    nodes = [
        helper.make_node("Mul", ["x", "x"], ["z"], name="z"),
        helper.make_node("Neg", ["x"], ["n"], name="n"),
        helper.make_node("Abs", ["n"], ["a"], name="a"),
        helper.make_node("Add", ["a", "a"], ["w"], name="w"),
    ]
    graph = helper.make_graph(nodes, "over", [port("x")], [port("n"), port("w"), port("z")])
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    build_for(tmp_path, target)
    onnx_iron.register()
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"),
        providers=["IronExecutionProvider", "CPUExecutionProvider"],
        provider_options=[{"device": "npu", "fallback": "cpu"}, {}],
    )
    assert {row.device for row in onnx_iron.placement(session).rows} == {"cpu", "npu"}
    x, w, z = (np.full((ROWS, WIDTH), value, BFLOAT16) for value in (3, 0, 0))
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, BF16, list(x.shape), x.ctypes.data)
    for name, array in (("n", x), ("w", w), ("z", z)):
        binding.bind_output(name, "cpu", 0, BF16, list(array.shape), array.ctypes.data)
    driver.fault(fault, after=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        session.run_with_iobinding(binding)
    assert (x.astype(np.float32) == -3).all()
    assert (w.astype(np.float32) == 6).all()
    assert (z.astype(np.float32) == 9).all()
