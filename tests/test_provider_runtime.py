"""The provider inside onnxruntime: names that C cuts, odd attributes, interrupts."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnx_iron
from onnx_iron import kernels
from onnx_iron.provider import planner
from onnx_iron.provider.library import programs_compiled

EP = "IronExecutionProvider"
X = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    onnx_iron.register()


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in outputs],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return proto.SerializeToString()


def open_model(data: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    (device,) = [d for d in ort.get_ep_devices() if d.ep_name == EP][:1]
    options.add_provider_for_devices([device], {})
    return ort.InferenceSession(data, options)


def run(data: bytes, inputs: Mapping[str, npt.NDArray[Any]]) -> Any:
    return open_model(data).run(None, dict(inputs))


def test_values_whose_names_differ_after_a_nul_stay_two() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["t\0a"]),
        helper.make_node("Exp", ["x"], ["t\0b"]),
        helper.make_node("Sub", ["t\0a", "t\0b"], ["y"]),
    ]
    (y,) = run(model(nodes, ["x"], ["y"]), {"x": X})
    np.testing.assert_allclose(y, -X - np.exp(X), rtol=1e-6)


def test_inputs_whose_names_differ_after_a_nul_stay_two() -> None:
    data = model([helper.make_node("Sub", ["x\0a", "x\0b"], ["y"])], ["x\0a", "x\0b"], ["y"])
    binding = (session := open_model(data)).io_binding()
    binding.bind_ortvalue_input("x\0a", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_input("x\0b", ort.OrtValue.ortvalue_from_numpy(X * X))
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X - X * X)


def test_a_name_like_no_other_may_have_a_nul_and_its_nodes_are_taken() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["t\0"]), helper.make_node("Exp", ["t\0"], ["y"])]
    before = programs_compiled()
    (y,) = run(model(nodes, ["x"], ["y"]), {"x": X})
    assert programs_compiled() == before + 1
    np.testing.assert_allclose(y, np.exp(-X), rtol=1e-6)


def test_nodes_beside_a_branch_that_reads_their_values_are_taken() -> None:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["t"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [4])],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["t"]),
        helper.make_node("ReduceSum", ["t"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    before = programs_compiled()
    (y,) = run(model(nodes, ["x"], ["y"]), {"x": X})
    np.testing.assert_array_equal(y, -X)
    assert programs_compiled() > before


def test_a_kernel_refuses_a_text_with_a_nul() -> None:
    with pytest.raises(ValueError, match="has a NUL in it"):
        kernels.run_kernel("Neg\0x", [X], [((4,), np.float32)])


def test_a_type_attribute_does_not_stop_the_load() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    optional = helper.make_node("Optional", ["x"], ["o"], type=kind)
    nodes = [
        helper.make_node("Optional", [], ["o"], type=kind),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("Cast", ["has"], ["h"], to=TensorProto.FLOAT),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Add", ["e", "h"], ["y"]),
    ]
    assert optional.attribute[0].type == onnx.AttributeProto.TYPE_PROTO
    (y,) = run(model(nodes, ["x"], ["y"]), {"x": X})
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("kind", ["open", "claim", "compile"])
def test_ctrl_c_while_a_session_opens_is_a_keyboard_interrupt(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = model([helper.make_node("Exp", ["x"], ["y"])], ["x"], ["y"])

    def interrupted(request: int, question: Mapping[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setitem(planner.ANSWERS, kind, interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_model(data)
    (y,) = run(data, {"x": X})
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)


def test_a_bad_index_is_told_with_the_names_of_the_weight_and_of_the_input() -> None:
    table = helper.make_tensor("embed.weight", TensorProto.FLOAT, [3, 2], list(range(6)))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["embed.weight", "token_ids"], ["y"], name="embed")],
        "graph",
        [helper.make_tensor_value_info("token_ids", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [table],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = open_model(proto.SerializeToString())
    with pytest.raises(Exception, match=r"'embed'.* is 7, .*'embed.weight', .*'token_ids'"):
        session.run(None, {"token_ids": np.array([0, 7])})


def test_a_terminated_run_is_an_error_and_the_session_goes_on() -> None:
    session = open_model(model([helper.make_node("Exp", ["x"], ["y"])], ["x"], ["y"]))
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="terminate"):
        session.run(None, {"x": X}, options)
    options.terminate = False
    (y,) = session.run(None, {"x": X}, options)
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)


def test_ctrl_c_while_a_new_shape_compiles_stops_the_run_and_the_session_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first four elements of fewer: another plan than the one that is made at the opening.
    few = np.array([0.5, -1.0], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["x", "zero", "four"], ["first"]),
            helper.make_node("Exp", ["first"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])],
        [
            helper.make_tensor(name, TensorProto.INT64, [1], [number])
            for name, number in (("zero", 0), ("four", 4))
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = open_model(proto.SerializeToString())

    def interrupted(request: int, question: Mapping[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)

    def run_and_go_on() -> None:
        # onnxruntime's error comes first; the interpreter tells of the signal at the next call.
        with pytest.raises(Exception, match="interrupted"):
            session.run(None, {"x": few})

    with monkeypatch.context() as patch:
        patch.setitem(planner.ANSWERS, "compile", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_and_go_on()
    (y,) = session.run(None, {"x": few})
    np.testing.assert_allclose(y, np.exp(few), rtol=1e-6)
