"""Standard operators on the execution provider."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from provider_models import (
    BF16,
    DTYPES,
    constant,
    iron,
    model,
    node,
    rand,
    spec,
    stock,
)

import onnx_iron

I64 = np.int64
FLOAT_CASES: list[tuple[str, list[Any], list[Any], dict[str, Any]]] = [
    *((op, [(3, 4), (4,)], [], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    ("Max", [(3, 4), (4,), (2, 1, 1)], [], {}),
    *((op, [(3, 5)], [], {}) for op in ("Sigmoid", "Tanh", "Relu", "Exp", "Erf", "Neg", "Abs")),
    ("Reciprocal", [(7,)], [], {}),
    ("Softplus", [(3, 5)], [], {}),
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


@pytest.mark.parametrize(
    "case", [c for c in FLOAT_CASES if c[0] not in ("Shape", "Softplus")], ids=case_name
)
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


def test_a_part_of_a_part_begins_where_both_say() -> None:
    serialized = model(
        [
            node("Slice", "x two nine zero", "part"),
            node("Slice", "part three six zero", "inner"),
            node("Add", "inner inner", "y"),
        ],
        [spec("x", (10, 4))],
        [spec("y", (3, 4))],
        [
            constant(name, np.array([value], np.int64))
            for name, value in (("zero", 0), ("two", 2), ("three", 3), ("six", 6), ("nine", 9))
        ],
    )
    x = rand(10, 4)
    np.testing.assert_array_equal(iron(serialized).run(None, {"x": x})[0], 2 * x[2:9][3:6])


@pytest.mark.parametrize(("start", "end"), [(-99, 3), (-99, -2), (2, 99), (-99, 99), (-3, -99)])
def test_a_slice_may_begin_before_the_beginning_and_end_behind_the_end(
    start: int, end: int
) -> None:
    serialized = model(
        [node("Slice", "x start end zero", "part"), node("Neg", "part", "y")],
        [spec("x", (5, 4))],
        [spec("y", ("n", 4))],
        [
            constant(name, np.array([value], np.int64))
            for name, value in (("start", start), ("end", end), ("zero", 0))
        ],
    )
    x = rand(5, 4)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x[start:end])


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_zero_in_a_shape_is_a_size_only_where_it_is_allowed(allowed: int) -> None:
    serialized = model(
        [node("Reshape", "x shape", "r", allowzero=allowed), node("Neg", "r", "y")],
        [spec("x", (0, 6))],
        [spec("y", ("a", "b"))],
        [constant("shape", np.array([3, 0], np.int64))],
    )
    x = np.zeros((0, 6), np.float32)
    if not allowed:  # the 0 stands for x's 6, and no 18 elements are there
        with pytest.raises(Exception, match=r"(?i)reshape"):
            iron(serialized).run(None, {"x": x})
        return
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    assert session.run(None, {"x": x})[0].shape == (3, 0)


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


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_are_stock_onnxruntimes(op: str, dtype: Any) -> None:
    serialized = model(
        [node(op, "x y", "z")],
        [spec("x", (6, 1), dtype), spec("y", (4,), dtype)],
        [spec("z", (6, 4), np.bool_)],
    )
    given = {"x": np.array([-7, -1, 0, 0, 5, 7])[:, None], "y": np.array([-1, 0, 5, 9])}
    given = {name: array.astype(dtype) for name, array in given.items()}
    if dtype is np.float32:
        given["x"][3], given["y"][3] = np.nan, -0.0
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    np.testing.assert_array_equal(
        session.run(None, given)[0], stock(serialized).run(None, given)[0]
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
