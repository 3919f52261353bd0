"""The operators' schemas for onnx's checker and shape inference, made from their declarations."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper
from onnx.defs import OpSchema, get_schema, register_schema

from onnx_iron.dtypes import BOOL, FLOAT32, INT32, DType, Spec, as_dtype, onnx_type
from onnx_iron.export.shapes import OpenShape, open_shapes
from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Kind, Op
from onnx_iron.operators.base import COMMON

_TYPES = {
    Kind.T: "T",
    Kind.T_OR_FLOAT32: "A",
    Kind.FLOAT32: "tensor(float)",
    Kind.ANY: "E",
    Kind.NUMBER: "N",
    Kind.BOOL: "tensor(bool)",
    Kind.INDEX: "I",
    Kind.SCALAR: "tensor(int32)",
}
_FIXED = {Kind.FLOAT32: FLOAT32, Kind.INDEX: INT32, Kind.SCALAR: INT32, Kind.BOOL: BOOL}
_CONSTRAINTS = {
    "T": (["tensor(float)", "tensor(bfloat16)"], "The type computed with."),
    "A": (["tensor(float)", "tensor(bfloat16)"], "The type computed with, or float."),
    "E": (
        [f"tensor({name})" for name in ("float", "bfloat16", "int32", "int64", "bool")],
        "The type moved.",
    ),
    "N": (
        [f"tensor({name})" for name in ("float", "bfloat16", "int32", "int64")],
        "The type computed with.",
    ),
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
    result = next(kind for kind in ("E", "N", "T") if kind in kinds)
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
        outputs=[
            OpSchema.FormalParameter(
                name,
                _tensor_of(op.results[name]) if name in op.results else result,
            )
            for name in op.outputs
        ],
        type_constraints=[
            (name, types, text) for name, (types, text) in _CONSTRAINTS.items() if name in kinds
        ],
        attributes=[_attribute(op, name) for name in sorted(op.onnx_attributes())],
    )
    made.set_type_and_shape_inference_function(lambda context: _infer(op, context))
    return made


def _tensor_of(dtype: DType) -> str:
    return f"tensor({'float' if dtype == FLOAT32 else dtype.name})"


def _attribute(op: type[Op], name: str) -> OpSchema.Attribute:
    kind, default = op.onnx_attributes()[name]
    types = {int: AttributeProto.INT, float: AttributeProto.FLOAT, str: AttributeProto.STRING}
    onnx_kind: OpSchema.AttrType = OpSchema.AttrType(types[kind])  # type: ignore[call-arg]
    if default is None:
        return OpSchema.Attribute(name, onnx_kind, "", required=False)
    return OpSchema.Attribute(name, helper.make_attribute(name, default))


def _infer(op: type[Op], context: Any) -> None:
    """Give onnx the outputs' types, and of their shapes what the inputs' known dimensions tell."""
    count = context.get_num_inputs()
    types = [_type(context.get_input_type(index)) for index in range(count)]
    attributes = {}
    for name in op.onnx_attributes():
        attribute = context.get_attribute(name)
        if attribute is not None and attribute.type != AttributeProto.UNDEFINED:
            value = helper.get_attribute_value(attribute)
            attributes[name] = value.decode() if isinstance(value, bytes) else value
    # An omitted operand and one of unknown type look alike: only an optional one may be omitted.
    omitted = [
        kind is None and op.inputs[index].optional if index < len(op.inputs) else False
        for index, kind in enumerate(types)
    ]
    try:
        operator = op.from_attributes(attributes)
        dtypes = _dtypes(op, types, omitted)
        if dtypes is None:
            return
        results = [FLOAT32] * len(op.outputs)

        def rule(shapes: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...]]:
            specs = [
                None if shape is None or dtype is None else Spec(shape, dtype)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            ]
            inferred = operator.infer(specs)
            results[:] = [dtype for _, dtype in inferred]
            return [shape for shape, _ in inferred]

        shapes = [
            (1,)
            if _is_scalar(op, index) and not omitted[index] and _unknown(kind)
            else kind[1]
            if kind
            else None
            for index, kind in enumerate(types)
        ]
        found = open_shapes(rule, shapes, omitted)
    except (TypeError, ValueError) as error:
        raise onnx.shape_inference.InferenceError(str(error)) from None
    for index in range(len(op.outputs)):
        shape = None if found is None else found[index]
        made = helper.make_tensor_type_proto(onnx_type(results[index]), shape)
        context.set_output_type(index, made)


def _type(type_proto: Any) -> tuple[int, OpenShape] | None:
    """The element type and the shape of an input, as far as onnx knows them."""
    tensor = None if type_proto is None else type_proto.tensor_type
    if tensor is None or not tensor.elem_type:
        return None
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    return tensor.elem_type, tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    )


def _is_scalar(op: type[Op], index: int) -> bool:
    return index < len(op.inputs) and op.inputs[index].kind is Kind.SCALAR


def _unknown(kind: tuple[int, OpenShape] | None) -> bool:
    return kind is None or kind[1] is None or not all(isinstance(dim, int) for dim in kind[1])


def _dtypes(
    op: type[Op], types: Sequence[tuple[int, OpenShape] | None], omitted: Sequence[bool]
) -> list[np.dtype[Any] | None] | None:
    """The inputs' dtypes, those unknown as the others tell; None where none tells the result's."""
    known = [kind and as_dtype(helper.tensor_dtype_to_np_dtype(kind[0])) for kind in types]
    named = list(zip(op.inputs, known, strict=False))
    common = next((d for declared, d in named if declared.kind in COMMON and d), None)
    if common is None:
        return None
    return [
        dtype or (None if left_out else _FIXED.get(declared.kind, common))
        for (declared, dtype), left_out in zip(named, omitted, strict=False)
    ] + known[len(op.inputs) :]
