"""The operators of domain onnx_iron: a step is a kernel of the same name, its types are what the
operator's own declaration infers."""

from __future__ import annotations

import functools

from onnx_iron.operators import OPERATORS, Op
from onnx_iron.provider.kernel_check import Frozen, freeze
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.specs import Spec

DOMAIN = "onnx_iron"


@functools.lru_cache(maxsize=1024)
def declared(op_type: str, attributes: Frozen) -> Op:
    """The operator with a node's attributes; a model has few of them, in many nodes.

    Raises:
        TypeError: an attribute of another type.
        ValueError: an unknown attribute, or a value out of range.
    """
    return OPERATORS[op_type].from_attributes({name: value for name, _, value in attributes})


def lower_iron(op: Operation) -> None:
    """Lower a node of the domain."""
    if op.node.op_type not in OPERATORS:
        known = ", ".join(sorted(OPERATORS))
        op.refuse(f"no operator {op.node.op_type} in {DOMAIN} 1; known: {known}")
    specs = [op.spec(i) if op.has(i) else None for i in range(op.input_count)]
    try:
        operator = declared(op.node.op_type, freeze(op.node.attributes))
        outputs = operator.infer(specs)
    except (TypeError, ValueError) as error:
        op.refuse(str(error))
    op.require(
        op.output_count <= len(outputs),
        f"{op.output_count} outputs, {op.node.op_type} has {len(outputs)}",
    )
    names = [op.output(Spec(*spec), index) for index, spec in enumerate(outputs)]
    inputs = [op.input(i) if op.has(i) else None for i in range(op.input_count)]
    op.step(op.node.op_type, inputs, names, **operator.attributes())
