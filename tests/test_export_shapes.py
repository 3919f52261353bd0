"""The shape inference of the operators' schemas, where less than all dimensions are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import random, traced
from onnx import TensorProto, helper

from onnx_iron import Precision, export
from onnx_iron import functional as F
from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Case, Kind, Op

TYPES = {
    Kind.T: TensorProto.BFLOAT16,
    Kind.NUMBER: TensorProto.BFLOAT16,
    Kind.BOOL: TensorProto.BOOL,
    Kind.ANY: TensorProto.BFLOAT16,
    Kind.T_OR_FLOAT32: TensorProto.FLOAT,
    Kind.FLOAT32: TensorProto.FLOAT,
    Kind.INDEX: TensorProto.INT32,
    Kind.SCALAR: TensorProto.INT32,
}
CASES = [
    pytest.param(op, case, id=f"{op.name}-{i}")
    for op in OPERATORS.values()
    for i, case in enumerate(op.cases)
]


def node(op: type[Op], case: Case) -> onnx.NodeProto:
    names = [i.name if i.name in {**case.shapes, **case.values} else "" for i in op.inputs]
    while names and not names[-1]:
        names.pop()
    single = {k: v[0] if isinstance(v, tuple) else v for k, v in case.attributes.items()}
    if "epilogue_modes" in single:
        single["epilogue"] = single.pop("epilogue_modes")
    attributes = op(**op._converted_fields(single)).attributes()
    return helper.make_node(op.name, names, list(op.outputs), domain=DOMAIN, **attributes)


def inferred(
    made: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], data_prop: bool = False
) -> list[Any]:
    """The types that onnx finds for a node's outputs."""
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in made.output]
    model = helper.make_model(
        helper.make_graph([made], "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, VERSION)],
    )
    found = onnx.shape_inference.infer_shapes(
        model, check_type=True, strict_mode=True, data_prop=data_prop
    )
    return [value.type.tensor_type for value in found.graph.output]


@pytest.mark.parametrize(("op", "case"), CASES)
@settings(derandomize=True, max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_found_with_open_dimensions_is_true_of_the_shapes_that_they_stand_for(
    op: type[Op], case: Case, data: st.DataObject
) -> None:
    made = node(op, case)
    full, open_ = [], []
    ranks_known = True
    for declared in op.inputs:
        if declared.name not in made.input:
            continue
        shape, kind = case.shapes.get(declared.name, ()), TYPES[declared.kind]
        full.append(helper.make_tensor_value_info(declared.name, kind, shape))
        dims = [data.draw(st.sampled_from([n, n, f"s{n}", None])) for n in shape]
        ranked = data.draw(st.sampled_from([True] * 5 + [False]))
        ranks_known &= ranked
        open_.append(helper.make_tensor_value_info(declared.name, kind, dims if ranked else None))
    for exact, found in zip(
        inferred(made, full), inferred(made, open_, data.draw(st.booleans())), strict=True
    ):
        assert found.elem_type == exact.elem_type != TensorProto.UNDEFINED
        if ranks_known:
            assert len(found.shape.dim) == len(exact.shape.dim)
        for true, dim in zip(exact.shape.dim, found.shape.dim, strict=False):
            if dim.HasField("dim_value"):
                assert dim.dim_value == true.dim_value
            elif dim.dim_param.startswith("s"):
                assert dim.dim_param == f"s{true.dim_value}"


@pytest.mark.parametrize(("op", "case"), CASES)
def test_an_input_of_unknown_type_is_no_error(op: type[Op], case: Case) -> None:
    """What comes from an operator that onnx does not know has no type."""
    made = node(op, case)
    for missing in made.input:
        if not missing:
            continue
        inputs = [
            helper.make_tensor_value_info(d.name, TYPES[d.kind], case.shapes.get(d.name, ()))
            for d in op.inputs
            if d.name in made.input and d.name != missing
        ]
        given_ = helper.make_tensor_value_info("given", TensorProto.FLOAT, None)
        unknown = helper.make_node("Unknown", ["given"], [missing], domain="elsewhere")
        model = helper.make_model(
            helper.make_graph(
                [unknown, made],
                "g",
                [given_, *inputs],
                [helper.make_value_info(name, onnx.TypeProto()) for name in made.output],
            ),
            opset_imports=[
                helper.make_opsetid("", 21),
                helper.make_opsetid(DOMAIN, VERSION),
                helper.make_opsetid("elsewhere", 1),
            ],
        )
        onnx.shape_inference.infer_shapes(model, strict_mode=True)


def test_a_model_with_an_open_dimension_passes_onnx_s_full_check(tmp_path: Path) -> None:
    def body(self: Any, x: Any) -> Any:
        return F.silu(F.linear(F.rms_norm(x, 8), self.w, precision=Precision.HIGHEST))

    export(traced(body, w=random(6, 8)), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    shapes = [
        [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in found.graph.value_info
    ]
    assert shapes == [["n", 8], ["n", 6]]
    onnx.checker.check_model(model, full_check=True)


def test_dimensions_that_can_t_fit_are_refused() -> None:
    made = helper.make_node("Add", ["a", "b"], ["y"], domain=DOMAIN)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("a", ["n", 3]), ("b", [4]))
    ]
    with pytest.raises(onnx.shape_inference.InferenceError):
        inferred(made, inputs)
