"""Which rule lowers a node."""

from __future__ import annotations

from onnx_iron.provider.graph import Node
from onnx_iron.provider.iron_ops import DOMAIN, lower_iron
from onnx_iron.provider.lowering import Lowering, Operation, Refused
from onnx_iron.provider.standard import RULES


def lower(node: Node, lowering: Lowering) -> None:
    """Turn a node into steps and views of ``lowering``.

    Raises:
        Refused: the node can't be run, and why.
    """
    operation = Operation(node, lowering)
    if node.domain == DOMAIN:
        lower_iron(operation)
    elif (node.domain, node.op_type) in RULES:
        RULES[node.domain, node.op_type](operation)
    else:
        raise Refused("there is no kernel for it")
    missing = [name for name in node.outputs if name and name not in lowering.specs]
    if missing:
        raise Refused(f"no kernel makes its output '{missing[0]}'")
