"""The operators' schemas for onnx's checker and shape inference, made from their declarations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import onnx
from onnx import AttributeProto, helper
from onnx.defs import OpSchema, get_schema, register_schema

from onnx_iron.dtypes import as_dtype, onnx_type
from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Kind, Op

_TYPES = {
    Kind.T: "T",
    Kind.T_OR_FLOAT32: "A",
    Kind.INDEX: "I",
    Kind.SCALAR: "tensor(int32)",
}
_CONSTRAINTS = {
    "T": (["tensor(float)", "tensor(bfloat16)"], "The type computed with."),
    "A": (["tensor(float)", "tensor(bfloat16)"], "The type computed with, or float."),
    "I": (["tensor(int32)", "tensor(int64)"], "Numbers of entries."),
}


def register_schemas() -> None:
    """Make the operators known to onnx in this process; once."""
    # onnx.reference lists all schemas as it is imported, and refuses a name in two domains
    # (Attention): it must come first, for whoever imports it later.
    import_module("onnx.reference")
    for op in OPERATORS.values():
        try:
            get_schema(op.name, VERSION, DOMAIN)
        except onnx.defs.SchemaError:
            register_schema(schema(op))


def schema(op: type[Op]) -> OpSchema:
    """An operator's schema, with its shape inference."""
    kinds = {_TYPES[declared.kind] for declared in op.inputs}
    made = OpSchema(
        op.name,
        DOMAIN,
        VERSION,
        doc=op.__doc__ or "",
        inputs=[
            OpSchema.FormalParameter(
                declared.name,
                _TYPES[declared.kind],
                param_option=(
                    OpSchema.FormalParameterOption.Optional
                    if declared.optional
                    else OpSchema.FormalParameterOption.Single
                ),
            )
            for declared in op.inputs
        ],
        outputs=[OpSchema.FormalParameter(name, "T") for name in op.outputs],
        type_constraints=[
            (name, types, text) for name, (types, text) in _CONSTRAINTS.items() if name in kinds
        ],
        attributes=[_attribute(op, name) for name in sorted(op.onnx_attributes())],
    )
    made.set_type_and_shape_inference_function(lambda context: _infer(op, context))
    return made


def _attribute(op: type[Op], name: str) -> OpSchema.Attribute:
    kind, default = op.onnx_attributes()[name]
    types = {int: AttributeProto.INT, float: AttributeProto.FLOAT, str: AttributeProto.STRING}
    onnx_kind: OpSchema.AttrType = OpSchema.AttrType(types[kind])  # type: ignore[call-arg]
    if default is None:
        return OpSchema.Attribute(name, onnx_kind, "", required=False)
    return OpSchema.Attribute(name, helper.make_attribute(name, default))


def _infer(op: type[Op], context: Any) -> None:
    """Give onnx the outputs' types and, where the inputs' shapes are known, their shapes."""
    given: list[tuple[tuple[int, ...], int] | None] = []
    for index in range(context.get_num_inputs()):
        type_proto = context.get_input_type(index)
        tensor = None if type_proto is None else type_proto.tensor_type
        if tensor is None or not tensor.elem_type:
            given.append(None)
            continue
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        if not tensor.HasField("shape") or -1 in dims:
            return
        given.append((tuple(dims), tensor.elem_type))
    attributes = {}
    for name in op.onnx_attributes():
        attribute = context.get_attribute(name)
        if attribute is not None and attribute.type != AttributeProto.UNDEFINED:
            value = helper.get_attribute_value(attribute)
            attributes[name] = value.decode() if isinstance(value, bytes) else value
    try:
        specs = [g and (g[0], as_dtype(helper.tensor_dtype_to_np_dtype(g[1]))) for g in given]
        inferred = op.from_attributes(attributes).infer(specs)
    except (TypeError, ValueError) as error:
        raise onnx.shape_inference.InferenceError(str(error)) from None
    for index, (shape, dtype) in enumerate(inferred):
        context.set_output_type(index, helper.make_tensor_type_proto(onnx_type(dtype), shape))
