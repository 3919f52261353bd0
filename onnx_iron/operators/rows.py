"""The rows of a product: their bounds, and their sums in numpy."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import Array
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


def row_products(x: Array, columns: Array) -> Array:
    """The float32 sums of ``x @ columns``, each row by itself: numpy's of a matrix depend on how
    many rows it has, and a row's result must not. Between, they are float64.
    """
    wide = columns.astype(np.float64)
    products = [row @ wide for row in x.reshape(-1, x.shape[-1]).astype(np.float64)]
    sums = np.array(products, np.float64).reshape(*x.shape[:-1], columns.shape[1])
    return sums.astype(np.float32)
