"""The bounds of a product's rows."""

from __future__ import annotations

from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import Shape


def row_bounds(name: str, x: Operand, weight: Operand, shape: Shape) -> dict[int, Value]:
    """Rows bounded in x are bounded in the product; nothing else may be."""
    for operand, axes in ((x, range(len(shape) - 1)), (weight, range(0))):
        for axis, rows in operand.valid.items() if isinstance(operand, Handle) else ():
            if axis not in axes:
                assert isinstance(operand, Handle)
                raise ValueError(
                    f"{name}: {operand.name} is bounded by {rows} along axis {axis}; only the rows "
                    "of the left operand may be"
                )
    return dict(x.valid) if isinstance(x, Handle) else {}
