"""Every operator's declared cases: its numpy reference against its ONNX function body."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from compare import assert_close
from networks import Exported, Network, random
from onnx import helper
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator

from onnx_iron.dtypes import BFLOAT16, BOOL, FLOAT32, FLOATS, INT32, INT64, Array, onnx_type
from onnx_iron.export import register_schemas
from onnx_iron.graph import Trace
from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Case, Kind, Op

CASES = [
    pytest.param(op, case, dtype, id=f"{name}: {case}, {dtype.name}")
    for name, op in sorted(OPERATORS.items())
    for case in op.cases
    for dtype in FLOATS
]
every_case = pytest.mark.parametrize(("op", "case", "dtype"), CASES)
every_operator = pytest.mark.parametrize(
    "op", [pytest.param(op, id=name) for name, op in sorted(OPERATORS.items())]
)

# One rounding for each element, of what IEEE defines in full: no runtime may differ.
EXACT = {"Add", "Sub", "Mul", "Div", "Copy", "Narrow", "SliceScatter", "Embedding", "RoPE"}


def check(op: Op, result: Array, expected: Array, *, by_body: bool = True) -> None:
    """Hold a runtime's result to the reference's, as exactly as the operator is defined; a
    standard operator made for the purpose may use fused multiply-adds.
    """
    if expected.dtype not in FLOATS:
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
    elif by_body and (op.name in EXACT or getattr(op, "activation", "") == "none"):
        assert_close(result, expected, ulp=0, reason=f"{op.name} is defined to the bit")
    elif result.dtype == BFLOAT16:
        assert_close(
            result,
            expected,
            ulp=1,
            of_largest=2**-19,
            reason="two float32 values near a rounding boundary fall to either side of it",
        )
    else:
        assert_close(
            result,
            expected,
            ulp=16,
            of_largest=2**-19,
            reason="sums are in another order, exp, erf and tanh are other approximations",
        )


def operands(
    op: type[Op], case: Case, dtype: Any, *, wide_angles: bool = False
) -> dict[str, Array]:
    """Random operands of a case, by input name."""
    made: dict[str, Array] = {}
    for seed, declared in enumerate(op.inputs):
        shape = case.shapes.get(declared.name)
        if shape is None:
            continue
        if declared.kind is Kind.INDEX:
            made[declared.name] = np.random.default_rng(seed).integers(
                0, case.shapes["weight"][0], shape, INT32
            )
        elif declared.kind is Kind.BOOL:
            made[declared.name] = random(*shape, seed=seed) > 0
        elif declared.kind is Kind.T_OR_FLOAT32 and wide_angles:
            made[declared.name] = random(*shape, seed=seed)
        else:
            wanted = np.float32 if declared.kind is Kind.FLOAT32 else dtype
            made[declared.name] = np.asarray(random(*shape, seed=seed), wanted)
    return made


def one_step(op: type[Op], case: Case) -> Network:
    """A graph whose body is one step: tensors are its inputs, scalars its per-call values."""
    tensors = [d.name for d in op.inputs if d.name in case.shapes]
    scalars = [d.name for d in op.inputs if d.name in case.values]

    def body(self: Any, *given: Any, **values: Any) -> Any:
        made = op.steps(**dict(zip(tensors, given, strict=True)), **values, **case.attributes)
        return made if len(made) > 1 else made[0]

    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kinds[0]) for name in ("self", *tensors)]
        + [inspect.Parameter(name, kinds[1]) for name in scalars]
    )
    return Network(body)


def traced(op: type[Op], case: Case, arrays: dict[str, Array]) -> tuple[Op, Trace, list[Array]]:
    """The operator as recorded, the trace of its one step, and what the reference gives."""
    graph = one_step(op, case)
    trace = graph.trace(**{name: (a.shape, a.dtype) for name, a in arrays.items()})
    results = graph.reference(*arrays.values(), **case.values)
    return trace.steps[0].op, trace, list(results) if isinstance(results, tuple) else [results]


def float32_feeds(arrays: dict[str, Array], case: Case) -> dict[str, Array]:
    """Inputs as an exported model takes them: float32, with int32 scalars."""
    feeds = {n: a.astype(np.float32) if a.dtype == BFLOAT16 else a for n, a in arrays.items()}
    return feeds | {name: np.array(value, np.int32) for name, value in case.values.items()}


@every_case
@pytest.mark.parametrize("dialect", ["iron", "standard"])
def test_stock_onnxruntime_agrees_with_the_reference(
    op: type[Op], case: Case, dtype: Any, dialect: str
) -> None:
    arrays = operands(op, case, dtype)
    made, trace, expected = traced(op, case, arrays)
    model = Exported(trace, dialect=dialect)
    domains = {node.domain for node in model.model.graph.node}
    if dialect == "standard":
        assert domains == {""}
        assert not model.model.functions
    else:
        assert [node.op_type for node in model.model.graph.node if node.domain] == [op.name]
    results = model(**float32_feeds(arrays, case)).values()
    for result, wanted in zip(results, expected, strict=True):
        check(made, result.astype(wanted.dtype), wanted, by_body=dialect == "iron")


@every_case
def test_onnx_s_reference_evaluator_agrees_with_the_reference(
    op: type[Op], case: Case, dtype: Any
) -> None:
    """With its functions inlined: the evaluator itself takes no overloads."""
    arrays = operands(op, case, dtype)
    made, trace, expected = traced(op, case, arrays)
    model = inline_local_functions(Exported(trace).model)
    assert not model.functions
    feeds = float32_feeds(arrays, case)
    names = {i.name for i in model.graph.input}
    results = ReferenceEvaluator(model).run(None, {n: x for n, x in feeds.items() if n in names})
    for result, wanted in zip(results, expected, strict=True):
        check(made, np.asarray(result).astype(wanted.dtype), wanted)


def one_node(op: Op, specs: dict[str, tuple[tuple[int, ...], Any]]) -> onnx.ModelProto:
    """A model of one node, its outputs' types and shapes left to inference."""
    names = [d.name if d.name in specs else "" for d in op.inputs]
    while not names[-1]:
        names.pop()
    outputs = [f"out_{name}" for name in op.outputs]
    node = helper.make_node(op.name, names, outputs, domain=DOMAIN, **op.attributes())
    graph = helper.make_graph(
        [node],
        "one_node",
        [helper.make_tensor_value_info(n, onnx_type(d), s) for n, (s, d) in specs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def inferred(model: onnx.ModelProto) -> list[tuple[tuple[int, ...], int]]:
    made = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    tensors = [output.type.tensor_type for output in made.graph.output]
    return [(tuple(d.dim_value for d in t.shape.dim), t.elem_type) for t in tensors]


@every_case
def test_onnx_s_shape_inference_agrees_with_the_operator_s(
    op: type[Op], case: Case, dtype: Any
) -> None:
    arrays = operands(op, case, dtype)
    made, trace, expected = traced(op, case, arrays)
    specs = {n: (a.shape, a.dtype) for n, a in arrays.items()}
    specs |= dict.fromkeys(case.values, ((), INT32))
    declared = made.infer([specs.get(d.name) for d in made.inputs])
    assert [(a.shape, a.dtype) for a in expected] == list(declared)
    assert [(h.shape, h.dtype) for h in trace.steps[0].outputs] == list(declared)
    assert inferred(one_node(made, specs)) == [(s, onnx_type(d)) for s, d in declared]


@every_case
def test_attributes_survive_a_node(op: type[Op], case: Case, dtype: Any) -> None:
    made, _, _ = traced(op, case, operands(op, case, dtype))
    node = helper.make_node(op.name, [], [], **made.attributes())
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    read = {n: v.decode() if isinstance(v, bytes) else v for n, v in values.items()}
    again = op.from_attributes(read)
    # A node holds a float in 32 bits.
    in_node = {n: np.float32(v) if type(v) is float else v for n, v in made.attributes().items()}
    assert again.attributes() == in_node
    kinds = {n: type(v) for n, v in made.attributes().items()}
    assert {n: type(v) for n, v in again.attributes().items()} == kinds
    assert op.from_attributes({}).attributes() == op.defaults()


@pytest.mark.parametrize("case", [pytest.param(c, id=str(c)) for c in OPERATORS["RoPE"].cases])
def test_rope_takes_float32_angles_with_bfloat16_rows(case: Case) -> None:
    op = OPERATORS["RoPE"]
    arrays = operands(op, case, BFLOAT16, wide_angles=True)
    assert arrays["angles"].dtype == FLOAT32
    made, trace, expected = traced(op, case, arrays)
    result = Exported(trace)(**float32_feeds(arrays, case))["output"]
    assert expected[0].dtype == BFLOAT16
    check(made, result.astype(BFLOAT16), expected[0])


@pytest.mark.parametrize("dtype", [INT32, INT64])
def test_embedding_takes_ids_of_either_index_dtype(dtype: Any) -> None:
    op, case = OPERATORS["Embedding"], Case({"weight": (11, 8), "ids": (5,)})
    arrays = operands(op, case, FLOAT32)
    arrays["ids"] = arrays["ids"].astype(dtype)
    made, trace, expected = traced(op, case, arrays)
    check(made, Exported(trace)(**arrays)["output"], expected[0])


@every_operator
def test_an_operator_is_declared_in_full(op: type[Op]) -> None:
    assert op.cases, f"{op.name} has no cases"
    assert op.__doc__, f"{op.name} has no docstring"
    assert not op.__doc__.startswith(f"{op.name}("), f"{op.name} has a generated docstring"
    assert onnx.defs.get_schema(op.name, VERSION, DOMAIN).doc == op.__doc__
    assert len({d.name for d in op.inputs}) == len(op.inputs)
    optional = {d.name for d in op.inputs if d.optional}
    tried = {name for case in op.cases for name in (*case.shapes, *case.values)}
    left_out = {n for case in op.cases for n in optional - {*case.shapes, *case.values}}
    assert tried == {d.name for d in op.inputs}, f"{op.name}: an input that no case gives"
    assert left_out == optional, f"{op.name}: an optional input that every case gives"


def test_schemas_are_registered_once() -> None:
    register_schemas()  # again, as a second import of a copy would
    domain = [s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == DOMAIN]
    assert sorted(domain) == sorted(OPERATORS)


@every_operator
def test_an_attribute_of_another_name_or_type_is_refused(op: type[Op]) -> None:
    with pytest.raises(ValueError, match=f"{op.name} has no attribute 'colour'; it has"):
        op.from_attributes({"colour": 1})
    for name, (kind, _) in op.onnx_attributes().items():
        wrong = 3 if kind is str else "3"
        with pytest.raises(TypeError, match=f"{op.name}.*is {wrong!r}; it must be"):
            op.from_attributes({name: wrong})
        if kind is int:
            with pytest.raises(TypeError, match=f"{op.name}.{name} is 0.5; it must be"):
                op.from_attributes({name: 0.5})
        if kind is str:
            with pytest.raises(ValueError, match=f"{op.name}.*'nothing'"):
                op.from_attributes({name: "nothing"})


# Shapes that fit no operator's input, by what is said of them.
MISFITS: list[tuple[str, dict[str, Any], dict[str, tuple[int, ...]], str]] = [
    ("Add", {}, {"a": (4, 3), "b": (2,)}, r"Add: shapes \(4, 3\) and \(2,\) do not broadcast"),
    ("GEMV", {}, {"weight": (4,), "x": (4,)}, r"GEMV.weight is \(4,\); it must be \(out, in\)"),
    ("GEMV", {}, {"weight": (4, 3), "x": (2, 3)}, r"GEMV.x is \(2, 3\).*it must be \(3,\) or"),
    ("GEMM", {}, {"a": (4, 3), "b": (4,)}, r"GEMM: a is \(4, 3\) and b \(4,\); both must be"),
    ("GEMM", {}, {"a": (4, 3), "b": (2, 3)}, r"GEMM.b is \(2, 3\).*must be \(3, n\)"),
    ("GEMM", {"b_col_maj": 1}, {"a": (4, 3), "b": (3, 2)}, r"GEMM.b is.*must be \(n, 3\)"),
    ("ProjectionGEMM", {}, {"a": (4, 3), "b": (2, 3)}, r"ProjectionGEMM.b is \(2, 3\)"),
    ("RMSNorm", {}, {"x": ()}, r"RMSNorm.x is \(\); it needs a last axis with entries"),
    ("RMSNorm", {}, {"x": (2, 4), "weight": (3,)}, r"RMSNorm.weight is \(3,\).*must be \(4,\)"),
    ("LayerNorm", {}, {"x": (2, 4), "weight": (2, 4)}, r"LayerNorm.weight is \(2, 4\)"),
    ("Softmax", {}, {"x": ()}, r"Softmax.x is \(\); it needs a last axis with entries"),
    ("RoPE", {}, {"x": (2, 3), "angles": (2, 3)}, r"RoPE.x is \(2, 3\).*head_dim even"),
    ("RoPE", {}, {"x": (3, 4), "angles": (2, 4)}, r"RoPE.angles is \(2, 4\).*n dividing 3"),
    ("Embedding", {}, {"weight": (4,), "ids": (2,)}, r"Embedding.weight is \(4,\)"),
    ("Narrow", {"length": 5}, {"x": (4,)}, r"Narrow.x is \(4,\); axis 0 must have 5 entries"),
    ("Narrow", {"axis": 1}, {"x": (4,)}, r"Narrow.x is \(4,\); axis 1 must have 1 entries"),
    ("SliceScatter", {}, {"x": (4, 3), "src": (2, 2)}, r"SliceScatter.src is \(2, 2\)"),
    ("SliceScatter", {}, {"x": (4, 3), "src": (5, 3)}, "no longer there"),
    ("CausalConv1d", {}, {"x": (4,), "taps": (2, 4), "state": (1, 4)}, r"CausalConv1d.x is \(4,\)"),
    ("CausalConv1d", {}, {"x": (4, 2), "taps": (2, 4), "state": (1, 4)}, r"CausalConv1d.taps is"),
    (
        "CausalConv1d",
        {},
        {"x": (4, 2), "taps": (3, 2), "state": (3, 2)},
        r"CausalConv1d.state is \(3, 2\).*so it must be \(2, 2\)",
    ),
    (
        "CausalConv1d",
        {},
        {"x": (4, 2), "taps": (2, 2), "state": (1, 2), "bias": (4,)},
        r"CausalConv1d.bias is \(4,\).*so it must be \(2,\)",
    ),
    ("Attention", {}, {"query": (4, 8), "key": (4, 1, 8), "value": (4, 1, 8)}, "Attention.query"),
    ("Attention", {}, {"query": (4, 2, 8), "key": (4, 1, 4), "value": (4, 1, 8)}, "Attention.key"),
    (
        "SelectiveScan",
        {},
        {
            **{"x": (4, 2), "dt": (4, 2), "a": (2, 3), "b": (4, 2), "c": (4, 3)},
            "state": (2, 3),
        },
        r"SelectiveScan.b is \(4, 2\).*so it must be \(4, 3\)",
    ),
    (
        "LinearAttention",
        {},
        {"query": (4, 2, 8), "key": (4, 1, 8), "value": (4, 1, 5), "state": (1, 5, 8)},
        r"LinearAttention.state is \(1, 5, 8\).*so it must be \(1, 8, 5\)",
    ),
    (
        "Attention",
        {},
        {"query": (4, 2, 8), "key": (4, 1, 8), "value": (3, 1, 8)},
        "Attention.value",
    ),
    (
        "Attention",
        {},
        {"query": (4, 3, 8), "key": (4, 2, 8), "value": (4, 2, 8)},
        "3 query heads are no multiple of 2 key heads",
    ),
]


@pytest.mark.parametrize(
    ("name", "attributes", "shapes", "message"), [pytest.param(*m, id=m[3]) for m in MISFITS]
)
def test_shapes_that_do_not_fit_are_refused_by_the_operator_and_by_onnx(
    name: str, attributes: dict[str, Any], shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    op = OPERATORS[name].from_attributes(attributes)
    integers = (Kind.INDEX, Kind.SCALAR)
    kinds = {d.name: INT32 if d.kind in integers else FLOAT32 for d in op.inputs}
    kinds |= {d.name: BOOL for d in op.inputs if d.kind is Kind.BOOL}
    specs = {n: (s, kinds[n]) for n, s in shapes.items()}
    specs |= {d.name: ((), INT32) for d in op.inputs if d.kind is Kind.SCALAR}
    with pytest.raises(ValueError, match=message):
        op.infer([specs.get(d.name) for d in op.inputs])
    with pytest.raises(onnx.shape_inference.InferenceError, match=message):
        inferred(one_node(op, specs))


def test_dtypes_that_do_not_fit_are_refused() -> None:
    add, rope, embedding = (OPERATORS[n].from_attributes({}) for n in ("Add", "RoPE", "Embedding"))
    narrow = OPERATORS["Narrow"].from_attributes({})
    row = (2, 4)
    with pytest.raises(TypeError, match=r"Add.b is bfloat16, the other operands are float32"):
        add.infer([(row, FLOAT32), (row, BFLOAT16)])
    with pytest.raises(TypeError, match=r"Add.b is float32, the other operands are int32"):
        add.infer([(row, INT32), (row, FLOAT32)])
    with pytest.raises(TypeError, match=r"RoPE.angles is bfloat16; it must be float32"):
        rope.infer([(row, FLOAT32), (row, BFLOAT16)])
    with pytest.raises(TypeError, match=r"Embedding.ids is float32; it must be int32 or int64"):
        embedding.infer([(row, FLOAT32), ((2,), FLOAT32)])
    with pytest.raises(TypeError, match=r"Narrow.start is int64 \(\); it must be one int32"):
        narrow.infer([(row, FLOAT32), ((), INT64)])
    with pytest.raises(TypeError, match=r"Narrow.start is int32 \(2,\); it must be one int32"):
        narrow.infer([(row, FLOAT32), ((2,), INT32)])
    with pytest.raises(ValueError, match=r"Add.b is missing"):
        add.infer([(row, FLOAT32)])
    with pytest.raises(ValueError, match=r"Add takes 2 inputs at most, not 3"):
        add.infer([(row, FLOAT32)] * 3)


def test_onnx_refuses_a_dtype_without_ending_the_process() -> None:
    softmax = OPERATORS["Softmax"].from_attributes({})
    model = one_node(softmax, {"x": ((2, 4), FLOAT32)})
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    with pytest.raises(onnx.shape_inference.InferenceError):
        inferred(model)


def test_a_dimension_that_is_not_known_is_left_open() -> None:
    softmax = OPERATORS["Softmax"].from_attributes({})
    model = one_node(softmax, {"x": ((2, 4), FLOAT32)})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    made = onnx.shape_inference.infer_shapes(model)
    dims = made.graph.output[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("rows", 4)


# -- what is checked at the call -------------------------------------------------------------

CALLS: list[tuple[str, dict[str, Any], dict[str, tuple[int, ...]], dict[str, int], str]] = [
    (
        "Narrow",
        {"length": 2},
        {"x": (4,)},
        {"start": 3},
        "start is 3 and rows 2, expected 0 <= start <= 2",
    ),
    (
        "Narrow",
        {"length": 2},
        {"x": (4,)},
        {"start": -1},
        "start is -1 and rows 2, expected 0 <= start <= 2",
    ),
    ("Narrow", {"length": 2}, {"x": (4,)}, {"start": 0, "rows": 3}, "rows is 3, expected 0..2"),
    (
        "Narrow",
        {"length": 2},
        {"x": (4,)},
        {"start": 4, "rows": 1},
        "start is 4 and rows 1, expected 0 <= start <= 3",
    ),
    (
        "SliceScatter",
        {},
        {"x": (4,), "src": (2,)},
        {"start": 3},
        "start is 3 and rows 2, expected 0 <= start <= 2",
    ),
    (
        "SliceScatter",
        {},
        {"x": (4,), "src": (2,)},
        {"start": 0, "rows": -1},
        "rows is -1, expected 0..2",
    ),
    (
        "CausalConv1d",
        {},
        {"x": (4, 2), "taps": (3, 2), "state": (2, 2)},
        {"rows": 5},
        r"rows is 5, expected 0..4 \(x has 4 rows\)",
    ),
    (
        "Attention",
        {"is_causal": True},
        {"query": (1, 1, 2), "key": (3, 1, 2), "value": (3, 1, 2)},
        {"position": 3},
        "position is 3, expected 0..2",
    ),
    (
        "Attention",
        {},
        {"query": (1, 1, 2), "key": (3, 1, 2), "value": (3, 1, 2)},
        {"kv_rows": 0},
        "kv_rows is 0, expected 1..3",
    ),
]


@pytest.mark.parametrize(
    ("name", "attributes", "shapes", "values", "message"),
    [pytest.param(*c, id=f"{c[0]} {c[4]}") for c in CALLS],
)
def test_a_scalar_out_of_range_is_an_error_at_the_call(
    name: str,
    attributes: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    values: dict[str, int],
    message: str,
) -> None:
    op, case = OPERATORS[name], Case(shapes, attributes, values)
    graph = one_step(op, case)
    with pytest.raises(ValueError, match=f"{name} '{op.stem}': {message}"):
        graph.reference(*operands(op, case, FLOAT32).values(), **values)


def test_an_id_outside_of_the_table_is_an_error_at_the_call() -> None:
    op, case = OPERATORS["Embedding"], Case({"weight": (11, 8), "ids": (2, 2)})
    weight = random(11, 8)
    for ids, place, wrong in (([[0, 10], [11, 3]], 2, 11), ([[0, -1], [11, 3]], 1, -1)):
        with pytest.raises(ValueError, match=rf"ids\[{place}\] is {wrong}, expected 0..10"):
            one_step(op, case).reference(weight, np.array(ids, np.int32))


def test_rounding_is_to_the_nearest_even() -> None:
    """Halfway between two bfloat16 numbers, the one with an even last bit."""
    one, last = np.array([1, 1, 1], BFLOAT16), 2.0**-7
    half = np.array([last / 2, 3 * last / 2, last * 0.51], BFLOAT16)
    result = one_step(OPERATORS["Add"], Case({"a": (3,), "b": (3,)})).reference(one, half)
    expected = np.array([1, 1 + 2 * last, 1 + last], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(result, expected)
