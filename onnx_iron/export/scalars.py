"""Integers of a call as ONNX values: inputs, constants, and the arithmetic between them."""

from __future__ import annotations

import numpy as np

from onnx_iron.export.nodes import Nodes
from onnx_iron.graph.value import Extremum, Symbol, Value


def scalar(nodes: Nodes, value: int | Value) -> str:
    """An int32 scalar: an input, a constant, or the nodes that compute it."""
    if not isinstance(value, Value):
        return nodes.constant(np.array(value, np.int32))
    return nodes.once(("Value", value), lambda: _affine(nodes, value))


def _affine(nodes: Nodes, value: Value) -> str:
    total = ""
    for symbol, factor in value.terms:
        term = _symbol(nodes, symbol)
        if factor != 1:
            term = nodes.node("Mul", [term, scalar(nodes, factor)], "scalar")
        total = nodes.node("Add", [total, term], "scalar") if total else term
    if not value.constant and total:
        return total
    constant = scalar(nodes, value.constant)
    return nodes.node("Add", [total, constant], "scalar") if total else constant


def _symbol(nodes: Nodes, symbol: Symbol) -> str:
    if isinstance(symbol, str):
        return symbol
    if isinstance(symbol, Extremum):
        both = [scalar(nodes, symbol.left), scalar(nodes, symbol.right)]
        return nodes.node({"min": "Min", "max": "Max"}[symbol.name], both, "scalar")
    # Div truncates; without the remainder (which has the divisor's sign) it is exact.
    numerator, divisor = scalar(nodes, symbol.numerator), scalar(nodes, symbol.divisor)
    rest = nodes.node("Mod", [numerator, divisor], "scalar")
    whole = nodes.node("Sub", [numerator, rest], "scalar")
    return nodes.node("Div", [whole, divisor], "scalar")
