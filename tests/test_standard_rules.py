"""Rules of standard operators against onnxruntime's kernels: forms, opsets, dtypes, open sizes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from provider_models import BF16, DTYPES, iron, rand, stock

import onnx_iron

I32, I64, F32 = np.int32, np.int64, np.float32
ANY = slice(None)


@dataclass
class Form:
    """A node: arrays that a call gives, constants behind them, attributes, and the opset."""

    op: str
    inputs: tuple[Any, ...]
    constants: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    domain: str = ""
    outputs: int = 1

    def __str__(self) -> str:
        shapes = " ".join(str(x.shape) for x in self.inputs)
        given = [
            None if c is None else c.tolist() if c.size < 9 and c.dtype.kind == "i" else c.shape
            for c in self.constants
        ]
        return f"{self.op}-{self.opset} {shapes} {given} {self.attributes}"

    def model(self, dtype: Any, *, dims: bool = True) -> tuple[bytes, dict[str, Any]]:
        """The node between two others that keep it from being folded away, in a dtype."""
        given = {f"x{i}": turned(x, dtype) for i, x in enumerate(self.inputs)}
        fixed = {f"c{i}": turned(c, dtype) for i, c in enumerate(self.constants) if c is not None}
        names = [*given, *(f"c{i}" if f"c{i}" in fixed else "" for i in range(len(self.constants)))]
        made = [f"y{i}" for i in range(self.outputs)]
        nodes = [helper.make_node("Identity", [name], [f"{name}.i"]) for name in given] + [
            helper.make_node(
                self.op,
                [f"{name}.i" if name in given else name for name in names],
                made,
                name="node",
                domain=self.domain,
                **self.attributes,
            )
        ]
        graph = helper.make_graph(
            nodes,
            "graph",
            [
                helper.make_tensor_value_info(
                    name,
                    DTYPES[x.dtype],
                    x.shape if dims else [f"{name}.{i}" for i in range(x.ndim)],
                )
                for name, x in given.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in made],
            [tensor(array, name) for name, array in fixed.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return model.SerializeToString(), given


def tensor(array: np.ndarray[Any, Any], name: str) -> TensorProto:
    if array.dtype != BF16:
        return numpy_helper.from_array(array, name)
    raw = array.view(np.uint16).tobytes()
    return helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, raw, raw=True)


def turned(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    return array.astype(dtype) if array.dtype == np.float32 else array


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, I64)


def mask(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return rand(*shape, seed=seed) > 0


def counts(*shape: int, dtype: Any = I64, most: int = 9) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(-most, most, shape).astype(dtype)


REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
# Until this opset the axes are an attribute.
ATTRIBUTE = {"Sum": 11}
X = rand(3, 4, 5)

FORMS = [
    *(
        Form(f"Reduce{kind}", (X,), (ints(*axes),), {"keepdims": keep}, 18 if kind != "Sum" else 13)
        for kind in REDUCTIONS
        for axes, keep in (((0,), 1), ((1,), 0), ((-1,), 0), ((0, 2), 0), ((2, -2), 1))
    ),
    *(
        Form(f"Reduce{kind}", (X,), (), {"axes": [0, -1], "keepdims": keep}, 11)
        for kind in REDUCTIONS
        for keep in (0, 1)
    ),
    *(Form(f"Reduce{kind}", (X,), (), {}, 13) for kind in REDUCTIONS),
    Form("ReduceLogSum", (np.abs(X),), (ints(1),), {}, 18),
    Form("ReduceSum", (X,), (), {"noop_with_empty_axes": 1}, 13),
    Form("ReduceMax", (X,), (ints(),), {"noop_with_empty_axes": 1}, 18),
    *(
        Form(f"Reduce{kind}", (counts(3, 4, 5, dtype=dtype),), (ints(1),), {"keepdims": 0}, 18)
        for kind in ("Max", "Min", "Prod")
        for dtype in (I32, I64)
    ),
    *(Form("ReduceSum", (counts(3, 4, dtype=dtype),), (ints(0),), {}) for dtype in (I32, I64)),
    *(
        Form(op, (X,), (), {"axis": axis}, opset)
        for op in ("Softmax", "LogSoftmax")
        for opset in (11, 13)
        for axis in (0, 1, 2, -1, -2)
    ),
    *(Form(op, (X,), (), {}, opset) for op in ("Softmax", "LogSoftmax") for opset in (11, 13)),
    *(
        Form("CumSum", (array,), (axis,), {"exclusive": exclusive, "reverse": reverse}, 14)
        for array in (X, counts(3, 4, 5, dtype=I32), counts(3, 4, 5))
        for axis in (np.array(0, I32), np.array([-1], I64))
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    *(Form(op, (mask(3, 4), mask(4, seed=1))) for op in ("And", "Or", "Xor")),
    Form("Not", (mask(3, 4),)),
    Form("Where", (mask(3, 1), counts(4), counts(2, 1, 4))),
    Form("Where", (mask(3, 1), X[0, 0, :1], X[:, 0, :4])),
    *(
        Form("Pad", (X,), (ints(1, 0, 2, 0, 3, 1),), {"mode": mode}, 13)
        for mode in ("constant", "edge", "reflect")
    ),
    Form("Pad", (X,), (ints(1, 0, 2, 0, 3, 1),), {"mode": "wrap"}, 19),
    Form("Pad", (X,), (ints(-1, 2, 0, 0, -3, 1), np.array(1.5, F32)), {}, 13),
    Form("Pad", (X,), (ints(-1, -2), None, ints(2)), {}, 18),
    Form("Pad", (X,), (ints(1, 2, 0, 1), np.array(-2, F32), ints(-1, 0)), {}, 18),
    Form("Pad", (counts(3, 4),), (ints(0, 1, 2, 0), np.array(7, I64)), {}, 13),
    Form("Pad", (mask(3, 4),), (ints(0, 1, 2, 0), np.array(True)), {}, 13),
    Form("Pad", (X,), (), {"pads": [0, 1, 0, 2, 0, 0], "value": 0.25}, 10),
    Form("Expand", (X[:, :1],), (ints(3, 6, 5),), {}, 13),
    Form("Expand", (X[:1],), (ints(2, 1, 1, 5),), {}, 8),
    Form("Expand", (X,), (ints(1, 1),), {}, 13),
    Form("Expand", (mask(3, 1),), (ints(2, 3, 4),), {}, 13),
    *(
        Form(
            "ConstantOfShape",
            (),
            (ints(2, 3),),
            {} if value is None else {"value": numpy_helper.from_array(value, "value")},
            13,
        )
        for value in (None, np.array([1.5], F32), np.array([-7], I64), np.array([True]))
    ),
    Form("Tile", (X,), (ints(2, 1, 3),), {}, 13),
    Form("Tile", (counts(3, 4),), (ints(1, 2),), {}, 6),
    Form("Trilu", (X,), (), {}, 14),
    Form("Trilu", (X,), (np.array(-1, I64),), {"upper": 1}, 14),
    Form("Trilu", (X,), (np.array(2, I64),), {"upper": 0}, 14),
    Form("Trilu", (X,), (np.array(-99, I64),), {"upper": 0}, 14),
    Form("Trilu", (counts(4, 3),), (np.array(1, I64),), {"upper": 0}, 14),
    Form("GatherElements", (X, counts(3, 7, 5, most=4)), (), {"axis": 1}, 13),
    Form("GatherElements", (X, counts(2, 2, 3, dtype=I32, most=5)), (), {"axis": -1}, 11),
    Form("GatherND", (X, counts(2, 6, 2, most=3)), (), {}, 13),
    Form("GatherND", (X, counts(3, 2, 1, most=4)), (), {"batch_dims": 1}, 13),
    Form("GatherND", (X, counts(3, 4, 1, most=5)), (), {"batch_dims": 2}, 12),
    Form("Clip", (X,), (np.array(-0.5, F32), np.array(0.75, F32)), {}, 13),
    Form("Clip", (X,), (None, np.array(0.75, F32)), {}, 11),
    Form("Clip", (X,), (np.array(0.25, F32),), {}, 12),
    Form("Clip", (X,), (np.array(1.0, F32), np.array(-1.0, F32)), {}, 13),
    Form("Clip", (X,), (), {"min": -0.25, "max": 0.5}, 6),
    Form("Clip", (counts(3, 4),), (np.array(-2, I64), np.array(3, I64)), {}, 13),
    Form("Sum", (X, X[0], X[:, :1]), (), {}, 13),
    *(Form(op, (4 * X,), (), {}, 13) for op in ("Floor", "Ceil", "Round", "Sign")),
    *(Form(op, (scale * X,), (), {}, 22) for op in ("Sin", "Cos") for scale in (1, 1000)),
    Form("IsNaN", (np.where(X > 1, np.float32("nan"), X),), (), {}, 13),
    Form("Slice", (X,), (ints(-1, 4), ints(-9, 0), ints(0, 2), ints(-1, -2)), {}, 13),
    Form("Slice", (X,), (ints(3, 0), ints(1, 99), ints(1, 2), ints(-1, 3)), {}, 13),
    Form("Shape", (X,), (), {"start": -2, "end": -1}, 15),
    Form("Size", (X,), (), {}, 13),
    Form("Squeeze", (X[:, :1],), (), {"axes": [1]}, 11),
    Form("Unsqueeze", (X,), (), {"axes": [0, -1]}, 11),
    Form("Split", (X,), (), {"axis": 1, "split": [1, 3]}, 11, outputs=2),
    *(
        Form("LayerNormalization", (X,), (rand(4, 5), rand(4, 5, seed=1)), {"axis": axis}, 17)
        for axis in (1, -2)
    ),
]

S = rand(2, 6, 17)
IMAGE = rand(2, 6, 9, 8)


def convolutions() -> list[Form]:
    def filters(*shape: int) -> np.ndarray[Any, Any]:
        return rand(*shape, seed=5) / np.float32(np.prod(shape[1:]) ** 0.5)

    bias = rand(8, seed=7)
    forms = [
        Form("Conv", (S,), (filters(8, 6, 3), bias), {}, 11),
        Form("Conv", (S,), (filters(8, 6, 3),), {"pads": [1, 2], "strides": [2]}, 11),
        Form("Conv", (S,), (filters(8, 3, 3), bias), {"group": 2, "dilations": [3]}, 11),
        Form("Conv", (S,), (filters(6, 1, 5),), {"group": 6, "pads": [4, 0]}, 11),
        Form("Conv", (S,), (filters(8, 6, 1), bias), {}, 11),
        Form("Conv", (S,), (filters(8, 6, 1),), {"strides": [3]}, 11),
        Form("Conv", (S,), (filters(8, 6, 17),), {"kernel_shape": [17]}, 22),
        Form("Conv", (IMAGE,), (filters(8, 6, 3, 3), bias), {"pads": [1, 1, 1, 1]}, 11),
        Form("Conv", (IMAGE,), (filters(8, 3, 3, 2),), {"group": 2, "strides": [2, 3]}, 11),
        Form("Conv", (IMAGE,), (filters(8, 6, 1, 1), bias), {}, 11),
        Form("Conv", (IMAGE,), (filters(8, 6, 2, 3),), {"dilations": [3, 2], "pads": [2, 0, 0, 3]}),
    ]
    for automatic in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        for stride in (1, 2):
            given = {"auto_pad": automatic, "strides": [stride]}
            forms.append(Form("Conv", (S,), (filters(8, 6, 4),), given, 11))
    return forms


def normalisations() -> list[Form]:
    scale, bias = rand(6, seed=2), rand(6, seed=3)
    mean, variance = rand(6, seed=4), np.abs(rand(6, seed=5)) + np.float32(0.1)
    return [
        Form("BatchNormalization", (S,), (scale, bias, mean, variance), {"epsilon": 1e-3}, 15),
        Form("BatchNormalization", (IMAGE,), (scale, bias, mean, variance), {}, 9),
        Form(
            "BatchNormalization", (X[:, 0, :4].repeat(2, 1)[:, :6],), (scale, bias, mean, variance)
        ),
        Form("InstanceNormalization", (S,), (scale, bias), {"epsilon": 1e-3}, 6),
        Form("InstanceNormalization", (IMAGE,), (scale, bias), {}, 22),
        Form("GroupNormalization", (S,), (scale[:3], bias[:3]), {"num_groups": 3}, 18),
        Form("GroupNormalization", (IMAGE,), (scale, bias), {"num_groups": 2}, 21),
        Form("GroupNormalization", (S,), (scale, bias), {"num_groups": 1, "epsilon": 1e-2}, 21),
    ]


FORMS += convolutions() + normalisations()


def run_narrow(session: ort.InferenceSession, given: dict[str, Any]) -> list[Any]:
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TensorProto.BFLOAT16)
        if array.dtype == BF16
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in given.items()
    }
    results = []
    for made in session.run_with_ort_values(None, values):
        if made.element_type() != TensorProto.BFLOAT16:
            results.append(made.numpy())
            continue
        raw = ctypes.string_at(made.data_ptr(), int(np.prod(made.shape())) * 2)
        results.append(np.frombuffer(raw, BF16).reshape(made.shape()))
    return results


def assert_alike(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if ours.dtype.kind in "bi":
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_form_is_ours_and_gives_what_stock_onnxruntime_gives(form: Form) -> None:
    serialized, given = form.model(F32)
    session = iron(serialized)
    report = onnx_iron.placement(session)
    assert report.complete, [row.reason for row in report.rows]
    for ours, theirs in zip(
        session.run(None, given), stock(serialized).run(None, given), strict=True
    ):
        # Sums of some hundred products in another order.
        assert_alike(ours, theirs, 1e-5, 2e-6)


OPEN = [form for form in FORMS if form.op not in ("GatherND", "Squeeze", "Shape", "Split")]


@pytest.mark.parametrize("form", OPEN, ids=str)
def test_of_sizes_that_only_a_call_knows_it_gives_the_same(form: Form) -> None:
    serialized, given = form.model(F32, dims=False)
    session = iron(serialized)
    expected = stock(serialized).run(None, given)
    for _ in range(2):
        for ours, theirs in zip(session.run(None, given), expected, strict=True):
            assert_alike(ours, theirs, 1e-5, 2e-6)


# bfloat16 came to these with opset 22, which changed nothing else.
LATE = ("Conv", "InstanceNormalization", "Round")


def takes_bfloat16(form: Form) -> bool:
    schema = onnx.defs.get_schema(form.op, form.opset, form.domain)
    kind = schema.inputs[1 if form.op == "Where" else 0].type_str
    types = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return "tensor(bfloat16)" in types.get(kind, [kind])


FLOATS = [
    replace(form, opset=22) if form.op in LATE else form
    for form in FORMS
    if any(x.dtype == np.float32 for x in form.inputs) and form.op not in ("Shape", "Size", "IsNaN")
]
FLOATS = [form for form in FLOATS if form.opset >= 13 and takes_bfloat16(form)]


@pytest.mark.parametrize("form", FLOATS, ids=str)
def test_in_bfloat16_it_is_the_float32_result_rounded(form: Form) -> None:
    narrow, given = form.model(BF16)
    session = iron(narrow)
    assert onnx_iron.placement(session).complete
    wide_form = Form(
        form.op,
        tuple(turned(x, BF16).astype(F32) if x.dtype == F32 else x for x in form.inputs),
        tuple(
            turned(c, BF16).astype(F32) if c is not None and c.dtype == F32 else c
            for c in form.constants
        ),
        form.attributes,
        form.opset,
        form.domain,
        form.outputs,
    )
    wide, exact = wide_form.model(F32)
    results = zip(run_narrow(session, given), stock(wide).run(None, exact), strict=True)
    # One rounding; a bias of a convolution is added to products, of up to 4, that were rounded.
    biased = form.op == "Conv" and len(form.constants) == 2
    for ours, theirs in results:
        assert ours.dtype == BF16
        atol = 2.0**-7 if biased else 2.0**-10
        np.testing.assert_allclose(ours.astype(F32), theirs, rtol=1.01 * 2.0**-8, atol=atol)


def refused(form: Form) -> str:
    """Why a node is left to onnxruntime."""
    serialized, given = form.model(F32)
    session = iron(serialized)
    rows = [row for row in onnx_iron.placement(session).rows if row.name == "node"]
    for ours, theirs in zip(
        session.run(None, given), stock(serialized).run(None, given), strict=True
    ):
        assert_alike(ours, theirs, 1e-5, 2e-6)
    (row,) = rows
    assert "Iron" not in row.provider
    return str(row.reason)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (
            Form("ReduceL2", (X,), (), {"noop_with_empty_axes": 1}, 18),
            "what it does without axes is not known",
        ),
        (Form("ReduceSum", (X, ints(0)), (), {}, 13), "is no small integer constant"),
        (
            Form("ReduceMean", (counts(3, 4),), (), {"axes": [0]}, 13),
            "kind is 'mean', expected 'sum'",
        ),
        (Form("Pad", (X,), (ints(0, 0, -1, 0, 0, 2),), {"mode": "edge"}, 13), "is padded by -1"),
        (Form("CumSum", (X, np.array(1, I64)), (), {}, 14), "is no small integer constant"),
        (
            Form("Conv", (rand(1, 2, 4, 4, 4),), (rand(3, 2, 2, 2, 2),), {}, 11),
            "one and two spatial axes are known",
        ),
    ],
    ids=str,
)
def test_a_form_that_is_not_known_is_left_with_a_reason(form: Form, reason: str) -> None:
    assert reason in refused(form)


def embedding(*, segments: bool, shown: bool, positions: bool, kept: bool) -> Form:
    random = np.random.default_rng(0)
    ids = random.integers(0, 30, (2, 7)).astype(I32)
    kinds = random.integers(0, 2, (2, 7)).astype(I32) if segments else None
    table = rand(2, 16, seed=2) if segments else None
    seen = (np.arange(7) < np.array([[7], [4]])).astype(I32) if shown else None
    places = random.integers(0, 12, (2, 7)).astype(I32) if positions else None
    return Form(
        "EmbedLayerNormalization",
        (ids,),
        (
            *(kinds, rand(30, 16), rand(12, 16, seed=1), table, rand(16, seed=3)),
            *(rand(16, seed=4), seen, places),
        ),
        {"epsilon": 1e-6},
        domain="com.microsoft",
        outputs=3 if kept else 2,
    )


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_embeddings_are_added_and_normalised_as_onnxruntime_does(
    segments: bool, shown: bool, positions: bool, kept: bool
) -> None:
    form = embedding(segments=segments, shown=shown, positions=positions, kept=kept)
    serialized, given = form.model(F32)
    session = iron(serialized)
    report = onnx_iron.placement(session)
    assert report.complete, [row.reason for row in report.rows]
    results = session.run(None, given), stock(serialized).run(None, given)
    for ours, theirs in zip(*results, strict=True):
        assert_alike(ours, theirs, 1e-5, 2e-6)


@pytest.mark.parametrize(("start", "delta"), [(0, 1), (2, 3), (-1, 1)])
@pytest.mark.parametrize("back", [False, True])
def test_a_range_is_as_long_as_a_call_s_sizes_make_it(start: int, delta: int, back: bool) -> None:
    """Places of a text whose length only a call knows."""
    length, first, step = "length", np.array(start, I64), np.array(delta, I64)
    ends = ("length", "start", "minus") if back else ("start", "length", "step")
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], [length]),
        helper.make_node("Range", list(ends), ["places"]),
        helper.make_node("Add", ["places", "start"], ["rows"]),
    ]
    constants = {"axis": np.array(1, I64), "start": first, "step": step}
    constants |= {"minus": -step}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("rows", TensorProto.INT64, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialized = model.SerializeToString()
    session, peer = iron(serialized), stock(serialized)
    assert onnx_iron.placement(session).complete
    for count in (1, 5, 40, 3, 40):
        given = {"x": rand(2, count)}
        ours, theirs = session.run(None, given)[0], peer.run(None, given)[0]
        np.testing.assert_array_equal(ours, theirs)
