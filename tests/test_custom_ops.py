"""The native library as a custom-op library: every operator on onnxruntime's own CPU provider."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from networks import Exported, Network, random
from onnx import TensorProto, helper
from test_operators import (
    check,
    every_case,
    float32_feeds,
    one_node,
    operands,
    traced,
)

import onnx_iron
from onnx_iron import Precision
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, FLOATS, INT32, INT64, Array
from onnx_iron.operators import DOMAIN, OPERATORS, Case, Op
from onnx_iron.provider import get_library_path


def custom(model: onnx.ModelProto, *, threads: int = 2) -> ort.InferenceSession:
    """A session on onnxruntime's own provider that has the library's operators."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.register_custom_ops_library(get_library_path())
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def bare(model: onnx.ModelProto) -> ort.InferenceSession:
    """A session on the model without its function bodies: only the operators can run it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.functions[:]
    return custom(made)


def negated(model: onnx.ModelProto) -> ort.InferenceSession:
    """A session on the model with function bodies that are wrong."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for body in made.functions:
        del body.node[:]
        body.node.append(helper.make_node("Neg", [body.input[0]], [body.output[0]]))
    return custom(made)


def run(session: ort.InferenceSession, **feeds: Any) -> list[Array]:
    """All outputs; inputs that the model has no use for are left out."""
    wanted = {i.name for i in session.get_inputs()}
    results: list[Array] = session.run(None, {n: x for n, x in feeds.items() if n in wanted})
    return results


def node(op: str, inputs: str, attributes: dict[str, Any], **shapes: list[Any]) -> onnx.ModelProto:
    """A float32 model of one node named "node"; inputs of rank 0 are int32."""
    made = helper.make_node(op, inputs.split(), ["y"], "node", domain=DOMAIN, **attributes)
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT if s else TensorProto.INT32, s)
        for n, s in shapes.items()
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([made], "graph", infos, [out])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@every_case
def test_custom_ops_agree_with_the_reference(op: type[Op], case: Case, dtype: Any) -> None:
    arrays = operands(op, case, dtype)
    made, trace, expected = traced(op, case, arrays)
    results = Exported(trace, bare)(**float32_feeds(arrays, case)).values()
    for result, wanted in zip(results, expected, strict=True):
        check(made, result.astype(wanted.dtype), wanted)


@pytest.mark.parametrize("case", [pytest.param(c, id=str(c)) for c in OPERATORS["RoPE"].cases])
def test_rope_takes_float32_angles_with_bfloat16_rows(case: Case) -> None:
    op = OPERATORS["RoPE"]
    arrays = operands(op, case, BFLOAT16, wide_angles=True)
    made, trace, expected = traced(op, case, arrays)
    result = Exported(trace, bare)(**float32_feeds(arrays, case))["output"]
    check(made, result.astype(BFLOAT16), expected[0])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ids_dtype", [INT32, INT64])
def test_embedding_takes_ids_of_either_index_dtype(dtype: Any, ids_dtype: Any) -> None:
    op, case = OPERATORS["Embedding"], Case({"weight": (11, 8), "ids": (5,)})
    arrays = operands(op, case, dtype)
    arrays["ids"] = arrays["ids"].astype(ids_dtype)
    made, trace, expected = traced(op, case, arrays)
    result = Exported(trace, bare)(**float32_feeds(arrays, case))["output"]
    check(made, result.astype(dtype), expected[0])


class Small(onnx_iron.Graph):
    """What a real body has: states, per-call values, omitted operands, standard operators."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.proj = self.weight(16, 16, seed=1)
        self.gain = self.weight(16, seed=2)
        self.taps = self.weight(3, 16, seed=3)
        self.conv = F.conv_state(3, 16, 4, dtype)
        self.keys = onnx_iron.state((8, 2, 8), dtype)

    def weight(self, *shape: int, seed: int) -> Array:
        return random(*shape, seed=seed, scale=shape[-1] ** -0.5).astype(self.dtype)

    def body(self, x: Any, *, position: Any, rows: Any) -> Any:
        length = x.shape[0]
        x = x[:rows] if length > 1 else x
        h = F.rms_norm(F.rms_norm(x, 16), 16, self.gain)
        h = F.causal_conv1d(h, self.taps, self.conv, activation="silu")
        h = F.linear(h, self.proj, precision=Precision.HIGHEST)
        heads = h.reshape(length, 2, 8)
        self.keys[position : position + length] = heads
        seen = F.scaled_dot_product_attention(
            heads, self.keys, self.keys, is_causal=True, position=position
        )
        return x + seen.reshape(length, 16)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("opened", [custom, bare])
def test_an_exported_graph_keeps_its_states(dtype: Any, length: int, opened: Any) -> None:
    graph = Small(dtype)
    model = Exported(graph.trace(x=((length, 16), dtype)), opened)
    assert any(node.overload for node in model.model.graph.node)
    position, rows = 0, max(1, length - 1)
    for call in range(2):
        x = random(length, 16, seed=call).astype(dtype)
        values = {"position": position, "rows": rows}
        result = model(x=x.astype(np.float32), **values)["output"]
        expected = graph.reference(x, **values).astype(np.float32)
        position += rows
        # A few roundings, one after the other.
        tolerance = 2**-6 if dtype == BFLOAT16 else 2**-18
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(result[:rows], expected[:rows], atol=atol)
    states = graph.reference_states()
    assert len(model.states) == 2
    for name, state in model.states.items():
        assert np.abs(state).max() > 0
        np.testing.assert_allclose(state, states[name].astype(np.float32), atol=tolerance)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("RMSNorm", {"x": (3, 8)}),
        ("RMSNorm", {"x": (3, 8), "weight": (8,)}),
        ("Add", {"a": (3, 8), "b": (8,)}),
    ],
)
def test_the_operators_are_preferred_to_function_bodies(
    name: str, shapes: dict[str, tuple[int, ...]]
) -> None:
    """Whatever a body says, and whatever its overload is called."""
    op, case = OPERATORS[name], Case(shapes)
    arrays = operands(op, case, FLOAT32)
    made, trace, expected = traced(op, case, arrays)
    model = Exported(trace, negated)
    assert bool(model.model.graph.node[0].overload) == ("weight" in shapes)
    check(made, model(**arrays)["output"], expected[0])


def test_an_attribute_that_is_absent_has_its_declared_default() -> None:
    x = random(3, 8)
    written = run(custom(node("RMSNorm", "x", {"epsilon": 1e-5}, x=[3, 8])), x=x)[0]
    absent = run(custom(node("RMSNorm", "x", {}, x=[3, 8])), x=x)[0]
    np.testing.assert_array_equal(written, absent)
    narrow = node("Narrow", "x start", {}, x=[3, 8], start=[])
    assert run(custom(narrow), x=x, start=np.array(1, np.int32))[0].shape == (1, 8)


def test_shapes_may_change_from_call_to_call() -> None:
    session = custom(node("GEMM", "a b", {"b_col_maj": 1}, a=["m", "k"], b=["n", "k"]))
    for m, k, n in [(1, 8, 3), (5, 8, 3), (1, 8, 3), (0, 8, 3), *((i, i, i) for i in range(1, 40))]:
        a, b = random(m, k), random(n, k, seed=1)
        np.testing.assert_allclose(run(session, a=a, b=b)[0], a @ b.T, atol=1e-4)


def test_a_node_of_constants_is_folded() -> None:
    model = node("Add", "a b", {}, a=[2, 3], b=[3])
    a, b = random(2, 3), random(3, seed=1)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(x, n) for n, x in (("a", a), ("b", b))
    )
    del model.graph.input[:]
    np.testing.assert_array_equal(run(custom(model))[0], a + b)


@pytest.mark.parametrize("threads", [1, 2])
def test_several_threads_may_run_one_session(threads: int) -> None:
    graph = Network(
        lambda self, x: F.linear(F.rms_norm(x, 128), self.w, precision=Precision.HIGHEST),
        w=random(512, 128),
    )
    trace = graph.trace(x=((64, 128), np.float32))
    session = Exported(trace, lambda model: custom(model, threads=threads)).session
    inputs = [random(64, 128, seed=seed) for seed in range(4)]
    expected = [run(session, x=x)[0] for x in inputs]
    failures: list[str] = []

    def work(index: int) -> None:
        for _ in range(20):
            if not np.array_equal(run(session, x=inputs[index])[0], expected[index]):
                failures.append(f"thread {index}")

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


# -- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "feeds", "message"),
    [
        (
            node("Narrow", "x start", {"length": 2}, x=[4], start=[]),
            {"x": (4,), "start": 3},
            r"Narrow 'node': start is 3 and rows 2, expected 0 <= start <= 2",
        ),
        (
            node("SliceScatter", "x src start rows", {}, x=[4], src=[2], start=[], rows=[]),
            {"x": (4,), "src": (2,), "start": 0, "rows": -1},
            r"SliceScatter 'node': rows is -1, expected 0..2",
        ),
        (
            node("Attention", "q k v p", {}, q=[1, 1, 2], k=[3, 1, 2], v=[3, 1, 2], p=[]),
            {"q": (1, 1, 2), "k": (3, 1, 2), "v": (3, 1, 2), "p": 3},
            r"Attention 'node': position is 3, expected 0..2 \(key has 3 rows\)",
        ),
        (
            node("GEMM", "a b", {}, a=["m", "k"], b=["l", "n"]),
            {"a": (2, 3), "b": (4, 2)},
            r"GEMM 'node': b has shape \(4, 2\), expected \(3, N\)",
        ),
        (
            node("Add", "a b", {}, a=["m"], b=["n"]),
            {"a": (2,), "b": (3,)},
            r"Add 'node': shapes \(2,\) and \(3,\) do not broadcast",
        ),
        (
            node("GELU", "x", {"approximate": "soft"}, x=[2]),
            {"x": (2,)},
            r"GELU 'node': approximate is 'soft', expected 'none' or 'tanh'",
        ),
    ],
)
def test_a_call_that_does_not_fit_names_the_node(
    model: onnx.ModelProto, feeds: dict[str, Any], message: str
) -> None:
    session = custom(model)
    given = {
        n: random(*f) if isinstance(f, tuple) else np.array(f, np.int32) for n, f in feeds.items()
    }
    with pytest.raises(Exception, match=message):
        run(session, **given)


def test_a_session_lives_on_after_an_error() -> None:
    session = custom(node("Narrow", "x start", {"length": 2}, x=[4], start=[]))
    x = random(4)
    for _ in range(3):
        with pytest.raises(Exception, match="expected 0 <= start <= 2"):
            run(session, x=x, start=np.array(3, np.int32))
        np.testing.assert_array_equal(run(session, x=x, start=np.array(1, np.int32))[0], x[1:3])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"epsilon": 1}, "RMSNorm 'node': attribute epsilon is an int, expected a float"),
        ({"epsilon": "1"}, "RMSNorm 'node': attribute epsilon is a string, expected a float"),
        ({"epsilon": [1, 2]}, "RMSNorm 'node': attribute epsilon is a list of ints, expected a"),
    ],
)
def test_an_attribute_of_another_kind_is_an_error_at_load(
    attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        custom(node("RMSNorm", "x", attributes, x=[2, 4]))


def test_a_dtype_that_no_operator_takes_is_an_error_at_load() -> None:
    model = one_node(OPERATORS["SiLU"](), {"x": ((2, 4), FLOAT32)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    with pytest.raises(Exception, match=r"SiLU"):
        custom(model)


# -- the library ----------------------------------------------------------------------------


def test_the_provider_and_the_custom_ops_run_side_by_side() -> None:
    """In two sessions, and in one: then the provider takes what it can."""
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 24):
        pytest.skip("onnxruntime 1.24 is the provider's first")
    model = node("SiLU", "x", {}, x=["n"])
    x = random(5)
    expected = run(custom(model), x=x)[0]
    onnx_iron.register()
    devices = [d for d in ort.get_ep_devices() if d.ep_name == "IronExecutionProvider"]
    alone, both = ort.SessionOptions(), ort.SessionOptions()
    both.register_custom_ops_library(get_library_path())
    body = helper.make_function(
        DOMAIN, "SiLU", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], []
    )
    body.opset_import.append(helper.make_opsetid("", 18))
    for options in (both, alone):
        options.add_provider_for_devices(devices, {})
        if options is alone:  # then only a body makes onnxruntime know the operator
            model.functions.append(body)
        session = ort.InferenceSession(model.SerializeToString(), options)
        np.testing.assert_array_equal(run(session, x=x)[0], expected)
    np.testing.assert_array_equal(run(custom(model), x=x)[0], expected)


def test_nothing_of_python_is_needed(tmp_path: Path) -> None:
    """A process that never imports onnx_iron; the library may go when its last session does."""
    path = tmp_path / "model.onnx"
    onnx.save(node("SiLU", "x", {}, x=["n"]), path)
    script = f"""
        import sys, numpy, onnxruntime
        x = numpy.arange(5, dtype=numpy.float32)
        for _ in range(3):
            options = onnxruntime.SessionOptions()
            options.register_custom_ops_library({get_library_path()!r})
            session = onnxruntime.InferenceSession({str(path)!r}, options)
            del options
            result = session.run(None, {{"x": x}})[0]
            numpy.testing.assert_allclose(result, x / (1 + numpy.exp(-x)), rtol=1e-6)
            del session
        kept = onnxruntime.SessionOptions()
        kept.register_custom_ops_library({get_library_path()!r})
        session = onnxruntime.InferenceSession({str(path)!r}, kept)
        assert "onnx_iron" not in sys.modules
        print("done")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_an_onnxruntime_that_is_too_old_is_told_so() -> None:
    script = f"""
        import ctypes
        messages = []
        @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        def create_status(code, message):
            messages.append((code, message.decode()))
            return 1
        table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p).value)
        @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
        def get_api(version):
            return ctypes.addressof(table) if version <= 16 else None
        version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(name))
        name = ctypes.create_string_buffer(b"1.16.3")
        base = (ctypes.c_void_p * 2)(*(ctypes.cast(f, ctypes.c_void_p).value
                                       for f in (get_api, version)))
        library = ctypes.CDLL({get_library_path()!r})
        library.RegisterCustomOps.restype = ctypes.c_void_p
        assert library.RegisterCustomOps(None, ctypes.byref(base)) == 1
        print(messages)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    said = "[(1, 'onnx-iron needs onnxruntime 1.17 or newer, this one is 1.16.3')]\n"
    assert ended.stdout == said, ended.stderr
