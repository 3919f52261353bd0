"""Which nodes the provider takes: opsets, contents of shapes, nodes that can't be examined."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from provider_models import BF16, EP, constant, iron, model, node, rand, spec, stock

import onnx_iron
from onnx_iron.dtypes import DTYPES, FLOAT32
from onnx_iron.provider.claim import decide
from onnx_iron.provider.graph import GraphDescription, Node, ValueInfo
from onnx_iron.provider.standard import RULES


def versions(op_type: str) -> list[int]:
    """The versions of a standard operator that onnx knows."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return sorted(s.since_version for s in schemas if (s.domain, s.name) == ("", op_type))


# onnxruntime's own, which it keeps in ONNX's domain.
ONNXRUNTIMES = ("", "SimplifiedLayerNormalization")


@pytest.mark.parametrize("op_type", sorted(n for d, n in RULES if not d and (d, n) != ONNXRUNTIMES))
def test_a_rule_names_versions_that_the_operator_has(op_type: str) -> None:
    rule = RULES["", op_type]
    assert {rule.since, rule.newest} <= set(versions(op_type))


def one_node(
    op_type: str, version: int, shapes: list[tuple[int, ...]], **attributes: Any
) -> GraphDescription:
    """A graph of one node with float32 operands."""
    names = tuple(f"x{i}" for i in range(len(shapes)))
    values = {
        name: ValueInfo(name, FLOAT32, 1, shape, False, None)
        for name, shape in zip(names, shapes, strict=True)
    }
    made = Node(0, "n", "", op_type, version, "", attributes, names, (), ("y",))
    return GraphDescription("g", False, (made,), values, names, ("y",))


# What an operator meant before the version from which it is taken, from onnx's changelog:
# legacy broadcasting (`broadcast`, `axis`), none at all, an axis by default, a string for a dtype,
# the shape as an attribute, `consumed_inputs`.
OLD: list[tuple[str, int, list[tuple[int, ...]], dict[str, Any]]] = [
    *((op, 6, [(2, 2), (2,)], {"broadcast": 1, "axis": 0}) for op in ("Add", "Sub", "Mul", "Div")),
    ("Pow", 1, [(2, 2), (2,)], {"broadcast": 1, "axis": 0}),
    *((op, 6, [(2, 2), (2, 2)], {}) for op in ("Max", "Min")),
    ("Concat", 1, [(2, 2), (2, 2)], {}),
    ("Cast", 1, [(2,)], {"to": "FLOAT"}),
    ("Reshape", 1, [(2, 2)], {"shape": [4]}),
    ("Gemm", 6, [(2, 2), (2, 2), (2,)], {"broadcast": 1}),
    *((op, 1, [(2,)], {"consumed_inputs": [0]}) for op in ("Abs", "Exp", "Relu", "Sigmoid")),
]


@pytest.mark.parametrize(
    ("op_type", "version", "shapes", "attributes"), OLD, ids=[case[0] for case in OLD]
)
def test_an_operator_that_meant_something_else_is_left(
    op_type: str, version: int, shapes: Any, attributes: Any
) -> None:
    (decision,) = decide(one_node(op_type, version, shapes, **attributes))
    assert not decision.taken
    assert decision.reason == (
        f"it is {op_type} of opset {version}; the oldest with the meaning that is known is "
        f"{RULES['', op_type].since}"
    )


@pytest.mark.parametrize("op_type", ["Add", "Neg", "MatMul"])
def test_an_operator_newer_than_its_rule_is_left(op_type: str) -> None:
    newest = RULES["", op_type].newest
    shapes = [(2, 2)] * (1 if op_type == "Neg" else 2)
    assert decide(one_node(op_type, newest, shapes))[0].taken
    (decision,) = decide(one_node(op_type, newest + 1, shapes))
    assert decision.reason.endswith(f"opset {newest + 1}; the newest that is known is {newest}")


def same_as_stock(serialized: bytes, given: dict[str, Any]) -> Any:
    """The session, after a run that gave what stock gives."""
    session = iron(serialized)
    for ours, theirs in zip(
        session.run(None, given), stock(serialized).run(None, given), strict=True
    ):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    return session


@pytest.mark.parametrize("rows", ["n", 2])
@pytest.mark.parametrize("between", ["Sinh", "Abs"])
def test_a_shape_is_known_to_its_own_group_alone(rows: Any, between: str) -> None:
    # Sinh is left: the Reshape after it is in another group than the Shape.
    serialized = model(
        [
            node("Shape", "x", "s"),
            node("Relu", "x", "r"),
            node(between, "r", "c"),
            node("Reshape", "c s", "y"),
        ],
        [spec("x", (rows, 3))],
        [spec("y", (rows, 3))],
    )
    loaded = onnx.load_from_string(serialized)
    del loaded.graph.output[0].type.tensor_type.shape.dim[:]
    loaded.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    session = same_as_stock(loaded.SerializeToString(), {"x": rand(2, 3)})
    places = {row.op_type: row for row in onnx_iron.placement(session).rows}
    if "Reshape" in places:  # onnxruntime folds the shape of a static model away
        taken = places["Reshape"].provider == EP
        assert taken == (between == "Abs") or rows == 2


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_what_a_stand_in_dimension_decides_is_left(rows: int) -> None:
    """The rank of a Squeeze without axes is known only to a call."""
    serialized = model(
        [node("Neg", "x", "a"), node("Squeeze", "a", "y")],
        [spec("x", ("n", 4, 1))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    session = same_as_stock(serialized, {"x": rand(rows, 4, 1)})
    reasons = {row.op_type: row.reason for row in onnx_iron.placement(session).rows}
    assert reasons["Squeeze"] == "which dimensions are 1 is known only when it runs"


@pytest.mark.parametrize("scale", [(1, 8), (3, 1), (2, 1, 1), (2, 3, 8)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_scale_that_broadcasts_gives_the_norm_in_float64(scale: Any, biased: bool) -> None:
    given = {"x": rand(2, 3, 8), "s": rand(*scale, seed=1), "b": rand(*scale, seed=2)}
    names = "x s b" if biased else "x s"
    session = iron(
        model(
            [node("LayerNormalization", names, "y")],
            [spec(name, given[name].shape) for name in names.split()],
            [spec("y", (2, 3, 8))],
        )
    )
    assert onnx_iron.placement(session).complete
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    centred = wide["x"] - wide["x"].mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * wide["s"]
    want += wide["b"] if biased else 0
    given = {name: given[name] for name in names.split()}
    np.testing.assert_allclose(session.run(None, given)[0], want, rtol=1e-4, atol=1e-5)


def test_a_factor_of_zero_leaves_gemms_third_operand_out() -> None:
    serialized = model(
        [node("Gemm", "a b c", "y", beta=0.0)],
        [spec("a", (2, 2)), spec("b", (2, 2))],
        [spec("y", (2, 2))],
        [constant("c", np.full(2, np.nan, np.float32))],
    )
    same_as_stock(serialized, {"a": rand(2, 2), "b": rand(2, 2, seed=1)})


def test_gemm_of_integers_with_an_infinite_factor_is_left() -> None:
    for number in (6, 7):
        graph = one_node("Gemm", 13, [(2, 2), (2, 2)], alpha=float("inf"))
        values = {
            name: ValueInfo(name, DTYPES[number], number, (2, 2), False, None)
            for name in graph.inputs
        }
        made = GraphDescription("g", False, graph.nodes, values, graph.inputs, graph.outputs)
        assert decide(made)[0].reason == f"operands are {DTYPES[number].name}"


def test_a_node_that_can_not_be_examined_is_left_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(operation: Any) -> None:
        raise OverflowError("too big for words")

    monkeypatch.setitem(RULES, ("", "Abs"), broken)
    serialized = model(
        [node("Neg", "x", "a"), node("Abs", "a", "b"), node("Relu", "b", "y")],
        [spec("x", (2, 8))],
        [spec("y", (2, 8))],
    )
    with caplog.at_level(logging.DEBUG, "onnx_iron"):
        session = same_as_stock(serialized, {"x": rand(2, 8)})
    rows = {row.op_type: row for row in onnx_iron.placement(session).rows}
    assert rows["Abs"].reason == "it could not be examined: OverflowError: too big for words"
    assert rows["Neg"].provider == EP
    assert any("Abs 'b' is left" in record.getMessage() for record in caplog.records)


def _grouped(batch: Any, width: Any, dtype: Any = np.float32) -> bytes:
    """GroupQueryAttention, 4 heads on 2, of width 16, whose past has dimensions with names."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def tensor(name: str, shape: Any, of: int = kind) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, of, shape)

    attend = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "past_k", "past_v", "ends", "total"],
        ["y", "key", "value"],
        "attend",
        domain="com.microsoft",
        num_heads=4,
        kv_num_heads=2,
    )
    nodes = [
        node("Shape", "mask", "dims"),
        node("Gather", "dims one", "wide"),
        node("Cast", "wide", "total", to=TensorProto.INT32),
        attend,
    ]
    cache, whole = ([batch, 2, rows, width] for rows in ("past", "whole"))
    graph = helper.make_graph(
        nodes,
        "g",
        [
            tensor("q", [batch, "rows", 64]),
            *(tensor(name, [batch, "rows", 32]) for name in "kv"),
            *(tensor(name, cache) for name in ("past_k", "past_v")),
            tensor("ends", [batch], TensorProto.INT32),
            tensor("mask", [batch, "whole"], TensorProto.INT64),
        ],
        [tensor("y", [batch, "rows", 64]), *(tensor(name, whole) for name in ("key", "value"))],
        [numpy_helper.from_array(np.array(1), "one")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(("batch", "past"), [(2, 0), (1, 5)])
def test_a_dimension_with_a_name_has_the_size_that_the_node_gives_it(batch: int, past: int) -> None:
    """As in onnxruntime-genai's models, whose caches name even the width of a head."""
    given = {
        "q": rand(batch, 3, 64),
        "k": rand(batch, 3, 32, seed=1),
        "v": rand(batch, 3, 32, seed=2),
        "past_k": rand(batch, 2, past, 16, seed=3),
        "past_v": rand(batch, 2, past, 16, seed=4),
        "ends": np.full(batch, past + 2, np.int32),
        "mask": np.ones((batch, past + 3), np.int64),
    }
    session = same_as_stock(_grouped("batch", "width"), given)
    assert onnx_iron.placement(session).complete


def test_a_dimension_that_the_model_gives_is_not_changed() -> None:
    rows = onnx_iron.placement(iron(_grouped("batch", 8))).rows
    (reason,) = [row.reason for row in rows if row.op_type == "GroupQueryAttention"]
    assert reason == "a past is float32 (8, 2, 8, 8), expected (8, 2, 'past', 16)"


def test_parts_whose_dimensions_have_names_fit_the_one_that_has_a_size() -> None:
    """bfloat16, which nothing else joins: left, the model would not load."""
    serialized = model(
        [node("Concat", "a b", "y", axis=1)],
        [spec("a", ("n", "before", "width"), BF16), spec("b", ("n", "rows", 24), BF16)],
        [spec("y", ("n", "all", 24), BF16)],
    )
    assert onnx_iron.placement(iron(serialized)).complete


def test_a_total_fits_what_it_is_the_total_of() -> None:
    """An additive mask of as many columns as there are entries and rows together."""
    serialized = model(
        [node("Concat", "past x", "whole", axis=0), node("Add", "whole mask", "y")],
        [
            spec("past", ("before", 4)),
            spec("x", ("rows", 4)),
            spec("mask", ("total", 4)),
        ],
        [spec("whole", ("total", 4)), spec("y", ("total", 4))],
    )
    assert onnx_iron.placement(iron(serialized)).complete


def test_rows_that_fit_others_only_one_by_one_are_taken() -> None:
    """A square of the rows added to what they see, which fits behind others for one row alone."""
    serialized = model(
        [
            node("Concat", "past x", "whole", axis=0),
            node("Transpose", "whole", "columns", perm=[1, 0]),
            node("MatMul", "x columns", "scores"),
            node("Add", "scores square", "y"),
        ],
        [
            spec("past", ("before", 4), BF16),
            spec("x", ("rows", 4), BF16),
            spec("square", ("rows", "rows"), BF16),
        ],
        [spec("y", ("rows", "total"), BF16)],
    )
    assert onnx_iron.placement(iron(serialized)).complete


def test_a_size_that_is_a_number_of_its_own_belongs_to_the_group() -> None:
    """As torch's exporter writes an open length: one entry of a shape, without its axis."""
    serialized = model(
        [
            helper.make_node("Shape", ["x"], ["entry"], name="entry", start=0, end=1),
            node("Squeeze", "entry", "length"),
            node("Unsqueeze", "length zero", "again"),
            node("Concat", "again rest", "wanted", axis=0),
            node("Add", "x x", "sum"),
            node("Reshape", "sum wanted", "y"),
            node("GatherND", "y places", "z"),
        ],
        [spec("x", ("n", 6)), spec("places", ("m", 2), np.int64)],
        [spec("z", ("m", 3))],
        [constant("zero", np.array([0])), constant("rest", np.array([2, 3]))],
    )
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    for rows in (5, 1):
        x, places = rand(rows, 6), np.array([[rows - 1, 1], [0, 0]])
        (given,) = session.run(None, {"x": x, "places": places})
        np.testing.assert_array_equal(given, (x + x).reshape(rows, 2, 3)[tuple(places.T)])


def test_what_is_between_quantized_values_is_left_to_be_fused() -> None:
    """onnxruntime makes products of integers of it, where nobody takes the product first."""
    scale, zero = constant("scale", np.float32(0.05)), helper.make_tensor("zero", 3, [], [0])
    weight = helper.make_tensor("codes", TensorProto.INT8, [32, 64], [1] * 2048)
    serialized = model(
        [
            node("Relu", "x", "positive"),
            node("QuantizeLinear", "positive scale zero", "q"),
            node("DequantizeLinear", "q scale zero", "d"),
            node("DequantizeLinear", "codes scale zero", "w"),
            node("MatMul", "d w", "product"),
            node("QuantizeLinear", "product scale zero", "qp"),
            node("DequantizeLinear", "qp scale zero", "y"),
        ],
        [spec("x", ("n", 32))],
        [spec("y", ("n", 64))],
        [scale, zero, weight],
    )
    session = iron(serialized)
    assert {row.provider for row in onnx_iron.placement(session).rows} == {"CPUExecutionProvider"}
    x = rand(3, 32)
    (given,), (wanted,) = session.run(None, {"x": x}), stock(serialized).run(None, {"x": x})
    np.testing.assert_array_equal(given, wanted)


def test_a_cost_is_no_reason_at_a_call() -> None:
    """What was taken for a small size that stands in runs at any size."""
    serialized = model(
        [node("Conv", "x w", "y", pads=[1, 1])],
        [spec("x", (1, 4, "n"))],
        [spec("y", (1, 8, "n"))],
        [constant("w", rand(8, 4, 3))],
    )
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    x = rand(1, 4, 5000)
    (given,), (wanted,) = session.run(None, {"x": x}), stock(serialized).run(None, {"x": x})
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)  # twelve products in any order
