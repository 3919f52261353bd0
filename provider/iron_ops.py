"""The operators of domain onnx_iron: a step is a kernel of the same name, its types are what the
operator's own declaration infers."""

from __future__ import annotations

from onnx_iron.operators import OPERATORS
from onnx_iron.provider.lowering import Operation

DOMAIN = "onnx_iron"


def lower_iron(op: Operation) -> None:
    """Lower a node of the domain."""
    if op.node.op_type not in OPERATORS:
        known = ", ".join(sorted(OPERATORS))
        op.refuse(f"no operator {op.node.op_type} in {DOMAIN} 1; known: {known}")
    specs = [op.spec(i) if op.has(i) else None for i in range(op.input_count)]
    try:
        operator = OPERATORS[op.node.op_type].from_attributes(op.node.attributes)
        outputs = operator.infer(specs)
    except (TypeError, ValueError) as error:
        op.refuse(str(error))
    op.require(
        op.output_count <= len(outputs),
        f"{op.output_count} outputs, {op.node.op_type} has {len(outputs)}",
    )
    names = [op.output(spec, index) for index, spec in enumerate(outputs)]
    inputs = [op.input(i) if op.has(i) else None for i in range(op.input_count)]
    op.step(operator, inputs, names)
