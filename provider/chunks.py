"""Cutting rows into chunks, and putting the results together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnx_iron.provider.model import Model
from onnx_iron.provider.specs import Array, DType


def dims_of(model: Model, name: str) -> tuple[int, ...]:
    """The shape of a per-call value: () or (1,)."""
    return tuple(dim or 1 for dim in model.inputs[name].dims)


def fitted(array: Array, dtype: DType) -> Array:
    """Numbers in another dtype, where it holds them; as they are where it does not."""
    whole = array.dtype.kind in "biu"
    if not whole and not (array.dtype.kind == "f" and dtype.kind not in "biu"):
        return array
    result = array.astype(dtype)
    return result if dtype.kind not in "biu" or np.array_equal(result, array) else array


def row_count(arrays: Mapping[str, Array], row_inputs: Sequence[str]) -> int:
    """The number of rows that the inputs have.

    Raises:
        ValueError: none, or different numbers.
    """
    counts = {
        name: len(arrays[name]) if arrays[name].ndim else 0 for name in row_inputs if name in arrays
    }
    if not counts or min(counts.values()) < 1 or len(set(counts.values())) > 1:
        raise ValueError(
            f"Session.prefill(): the inputs {', '.join(map(repr, row_inputs))} have {counts} rows, "
            "expected the same number in each, and at least 1"
        )
    return next(iter(counts.values()))


def leading(arrays: Sequence[Array]) -> int:
    """The number of rows that arrays agree on, or 1."""
    counts = {array.shape[0] for array in arrays if array.ndim}
    return int(counts.pop()) if len(counts) == 1 else 1


def padded(array: Array, length: int) -> Array:
    """Rows, with zeros after them up to a length."""
    if len(array) == length:
        return array
    result = np.zeros((length, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result


def joined(
    parts: Sequence[tuple[Model, int, dict[str, Array]]], model: Model, length: int
) -> dict[str, Array]:
    """The last chunk's outputs, with the valid rows of all chunks where an output has rows."""
    results = dict(parts[-1][2])
    for name, port in model.outputs.items():
        if port.dims and port.dims[0] == length and length > 1:
            results[name] = np.concatenate([outputs[name][:rows] for _, rows, outputs in parts])
    return results
