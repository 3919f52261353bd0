"""onnx's own node tests: what stock onnxruntime runs, runs with our provider and gives the same."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper

import onnx_iron

EP = "IronExecutionProvider"
BF16 = np.dtype(ml_dtypes.bfloat16)
# The dtypes that numpy has from ml_dtypes, which onnxruntime takes by number only.
NUMBERED = {
    np.dtype(getattr(ml_dtypes, name)): number
    for name, number in (
        ("bfloat16", TensorProto.BFLOAT16),
        ("float8_e4m3fn", TensorProto.FLOAT8E4M3FN),
        ("float8_e4m3fnuz", TensorProto.FLOAT8E4M3FNUZ),
        ("float8_e5m2", TensorProto.FLOAT8E5M2),
        ("float8_e5m2fnuz", TensorProto.FLOAT8E5M2FNUZ),
    )
}
DTYPES = {number: dtype for dtype, number in NUMBERED.items()}


@dataclass(frozen=True)
class Case:
    """A node test: its model, and the inputs of its first data set."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]


@functools.cache
def cases() -> tuple[Case, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.loader as loader

        found = loader.load_model_tests(kind="node")
    return tuple(read(case) for case in sorted(found, key=lambda case: case.name))


def read(case: Any) -> Case:
    if case.model is not None:
        inputs = case.data_sets[0][0]
        return Case(case.name, case.model, tuple(plain(value) for value in inputs))
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    readers: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    inputs = []
    for number, declared in enumerate(model.graph.input):
        file = folder / "test_data_set_0" / f"input_{number}.pb"
        if not file.exists():
            break
        make, to_python = readers[declared.type.WhichOneof("value")]
        proto = make()
        proto.ParseFromString(file.read_bytes())
        inputs.append(plain(to_python(proto)))
    return Case(case.name, model, tuple(inputs))


def plain(value: Any) -> Any:
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return np.array(value, order="C")
    return value


def open_on(model: onnx.ModelProto, ours: bool, level: Any = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if level is not None:
        options.graph_optimization_level = level
    if ours:
        devices = [device for device in ort.get_ep_devices() if device.ep_name == EP]
        options.add_provider_for_devices(devices, {})
        return ort.InferenceSession(model.SerializeToString(), options)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(session: ort.InferenceSession, inputs: tuple[Any, ...]) -> list[Any]:
    feeds = dict(zip((item.name for item in session.get_inputs()), inputs, strict=False))
    named = ("tensor(bfloat16)", "tensor(float8")
    items = (*session.get_inputs(), *session.get_outputs())
    if not any(item.type.startswith(named) for item in items):
        result: list[Any] = session.run(None, feeds)
        return result
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, NUMBERED[array.dtype])
        if array.dtype in NUMBERED
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    return [to_array(made) for made in session.run_with_ort_values(None, values)]


def to_array(value: ort.OrtValue) -> np.ndarray[Any, Any]:
    dtype = DTYPES.get(value.element_type())
    if dtype is None:
        array: np.ndarray[Any, Any] = value.numpy()
        return array
    count = int(np.prod(value.shape()))
    raw = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return np.frombuffer(raw, dtype).reshape(value.shape())


def difference(ours: Any, stock: Any, rtol: float, atol: float) -> str:
    """How two results differ; empty where they do not."""
    if isinstance(stock, list | tuple):
        if len(ours) != len(stock):
            return f"{len(ours)} values, stock has {len(stock)}"
        found = (difference(a, b, rtol, atol) for a, b in zip(ours, stock, strict=True))
        return next(filter(None, found), "")
    if ours is None or stock is None:
        return "" if ours is stock else f"{ours!r}, stock has {stock!r}"
    a, b = np.asarray(ours), np.asarray(stock)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {a.shape}, stock has {b.dtype} {b.shape}"
    if a.dtype.kind in "OUSb":
        return "" if np.array_equal(a, b) else "the values differ"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    same = np.isclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol, equal_nan=True)
    return "" if same.all() else f"{(~same).sum()} of {same.size} values differ"


def as_it_is(model: onnx.ModelProto) -> onnx.ModelProto:
    return model


def with_open_dimensions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a symbol of its own for every dimension at its border, and none within."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    number = 0
    for value in (*made.graph.input, *made.graph.output):
        if value.type.WhichOneof("value") == "tensor_type":
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_param = f"symbol{number}"
                number += 1
    del made.graph.value_info[:]
    return made


def compared(
    change: Callable[[onnx.ModelProto], onnx.ModelProto], level: Any
) -> Iterator[tuple[str, str]]:
    """By name, how our result differs from stock's, for each test that stock runs."""
    for case in cases():
        model = change(case.model)
        try:
            stock = run(open_on(model, ours=False, level=level), case.inputs)
        except Exception:  # onnxruntime's exceptions have no common base
            continue
        try:
            ours = run(open_on(model, ours=True, level=level), case.inputs)
        except Exception as error:
            yield case.name, str(error)
            continue
        # Sums have another order than stock's.
        yield case.name, difference(ours, stock, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "level"),
    [
        (as_it_is, None),
        (as_it_is, ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
        (with_open_dimensions, None),
        (with_open_dimensions, ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
    ],
    ids=["as is", "not optimised", "open dimensions", "open dimensions, not optimised"],
)
def test_what_stock_onnxruntime_runs_gives_the_same_with_our_provider(
    change: Any, level: Any
) -> None:
    onnx_iron.register()
    results = dict(compared(change, level))
    assert {name: message for name, message in results.items() if message} == {}
    # The others are of opsets or types that this onnxruntime does not open.
    print(f"{len(results)} of {len(cases())} node tests compared")
    assert len(results) > 300


def with_constants(case: Case) -> Case | None:
    """The test with integers behind its first input (axes, pads, a shape) as constants, which is
    what exporters write; None where it has none."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept, fixed = [], 0
    for index, (value, array) in enumerate(zip(model.graph.input, case.inputs, strict=False)):
        whole = isinstance(array, np.ndarray) and array.dtype in (np.int32, np.int64)
        if whole and (index or case.model.graph.node[0].op_type in CONSTANT_FIRST):
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            fixed += 1
        else:
            kept.append((value, array))
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value, _ in kept]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return Case(case.name, model, tuple(array for _, array in kept)) if fixed and kept else None


# What of them is a shape comes first.
CONSTANT_FIRST = ("Range", "ConstantOfShape")
# Of these, every form that stock runs with constants is ours, but for float64.
OURS = ("CumSum", "Expand", "Pad", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin")
OURS += ("ReduceProd", "ReduceSum", "ReduceSumSquare", "Slice", "Split", "Squeeze", "Tile", "Trilu")
OURS += ("Unsqueeze", "ReduceLogSum", "ReduceLogSumExp", "GatherElements", "GatherND")


@pytest.mark.parametrize("change", [as_it_is, with_open_dimensions], ids=["as is", "open"])
def test_with_its_axes_and_shapes_as_constants_a_node_test_gives_the_same(change: Any) -> None:
    onnx_iron.register()
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wrong, count, left = {}, 0, []
    for case in map(with_constants, cases()):
        if case is None:
            continue
        model = change(case.model)
        try:
            stock = run(open_on(model, ours=False, level=level), case.inputs)
        except Exception:  # onnxruntime's exceptions have no common base
            continue
        count += 1
        try:
            session = open_on(model, ours=True, level=level)
            message = difference(run(session, case.inputs), stock, rtol=1e-4, atol=1e-6)
        except Exception as error:
            message = str(error)
        if message:
            wrong[case.name] = message
        places = {group.ep_name for group in session.get_provider_graph_assignment_info()}
        ours = case.model.graph.node[0].op_type in OURS and case.inputs[0].dtype != np.float64
        if change is as_it_is and ours and places != {EP}:
            left.append(case.name)
    assert wrong == {}
    assert left == []
    assert count > 150


def narrowed(case: Case) -> tuple[onnx.ModelProto, tuple[Any, ...]] | None:
    """A test of one node with bfloat16 wherever it has float32; None where that is nowhere."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if len(model.graph.node) != 1 or model.graph.initializer:
        return None
    changed = 0
    for value in (*model.graph.input, *model.graph.output):
        declared = value.type.tensor_type
        if declared.elem_type == TensorProto.FLOAT:
            declared.elem_type = TensorProto.BFLOAT16
            changed += 1
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.BFLOAT16
    inputs = tuple(
        array.astype(BF16) if getattr(array, "dtype", None) == np.float32 else array
        for array in case.inputs
    )
    return (model, inputs) if changed else None


def test_in_bfloat16_a_node_gives_stocks_float32_rounded() -> None:
    onnx_iron.register()
    wrong, count = {}, 0
    for case in cases():
        turned = narrowed(case)
        if turned is None:
            continue
        model, inputs = turned
        try:
            session, wide_session = open_on(model, ours=True), open_on(case.model, ours=False)
        except Exception:  # nobody has a kernel for the node
            continue
        places = {group.ep_name for group in session.get_provider_graph_assignment_info()}
        if places != {EP}:
            continue
        wide = tuple(
            narrow.astype(array.dtype) if isinstance(array, np.ndarray) else array
            for narrow, array in zip(inputs, case.inputs, strict=True)
        )
        stock, ours = (
            [array.astype(np.float32) if array.dtype == BF16 else array for array in made]
            for made in (run(wide_session, wide), run(session, inputs))
        )
        count += 1
        # Stock's float32 and ours may round to neighbours where they lie near the middle; a bias,
        # a factor or a scale of its own shape is a step with a rounding of its own.
        message = difference(ours, stock, rtol=2**-7, atol=2**-7)
        if message:
            wrong[case.name] = message
    assert wrong == {}
    assert count > 100
