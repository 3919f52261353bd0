"""Models of a few nodes for the provider's tests, and sessions that run them."""

from __future__ import annotations

from collections.abc import Sequence
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
