"""Cutting rows into chunks, and putting the results together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array, DType
from onnx_iron.graph.value import Value
from onnx_iron.provider.model import Model, Port, unknown


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


def as_given(where: str, name: str, value: Any) -> Array:
    """An input as an array.

    Raises:
        ValueError: lists of several lengths.
    """
    try:
        return np.asarray(value)
    except ValueError:
        lengths = [str(len(part)) for part in value if hasattr(part, "__len__")]
        raise ValueError(
            f"{where}: input {name!r} has sequences of {', '.join(lengths)} entries; those of a "
            "batch have one length, for they stand at one position: run what is longer or shorter "
            "by itself, or in a fork()"
        ) from None


def arrays_of(where: str, model: Model, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs of a call as arrays; numbers and lists take the model's dtype.

    Raises:
        ValueError: a name that is no input's, or lists of several lengths.
    """
    arrays = {}
    for name, value in inputs.items():
        port = model.inputs.get(name)
        if port is None:
            raise ValueError(f"{where}: {unknown(name, list(model.inputs))}")
        array = as_given(where, name, value)
        scalar = name in model.values and array.size == 1
        if scalar or not isinstance(value, np.ndarray | np.generic):
            array = fitted(array, port.dtype)
        arrays[name] = array.reshape(dims_of(model, name)) if scalar else array
    return arrays


def row_count(model: Model, arrays: Mapping[str, Array], row_inputs: Mapping[str, int]) -> int:
    """The number of rows that the inputs have along their axes.

    Raises:
        ValueError: none, or different numbers, or other axes that are not the model's.
    """
    for name, axis in row_inputs.items():
        dims = model.inputs[name].dims
        rest = Port(name, model.inputs[name].dtype, (*dims[:axis], None, *dims[axis + 1 :]))
        if axis and name in arrays and not rest.fits(arrays[name].shape):
            raise ValueError(
                f"Session.prefill(): input {name!r} has shape {arrays[name].shape}, expected "
                f"{rest}" + (f": {model.batch} sequences of one length" if model.batch else "")
            )
    counts = {
        name: arrays[name].shape[axis] if axis < arrays[name].ndim else 0
        for name, axis in row_inputs.items()
        if name in arrays
    }
    if not counts or min(counts.values()) < 1 or len(set(counts.values())) > 1:
        raise ValueError(
            f"Session.prefill(): the inputs {', '.join(map(repr, row_inputs))} have {counts} rows, "
            "expected the same number in each, and at least 1"
        )
    return next(iter(counts.values()))


@dataclass(frozen=True)
class Chunk:
    """A part of a prompt: the model that runs it, and how many rows it has."""

    model: Model
    rows: int
    begin: int

    def bound(self, rows: Value, value: str) -> int:
        """How many entries an axis has here that follows the rows."""
        return rows.evaluate({value: self.rows})


def chunks(model: Model, rest: Model, length: int, count: int) -> list[Chunk]:
    """``count`` rows in chunks of a length; a single row that is left over goes to ``rest``."""
    found = []
    for begin in range(0, count, length):
        rows = min(length, count - begin)
        found.append(Chunk(rest if rows == 1 else model, rows, begin))
    return found


def cut(
    where: str, model: Model, parts: Sequence[Chunk], arrays: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """The inputs of each chunk: of those that follow the rows their part, zeros after it.

    Raises:
        ValueError: an input that can't be cut, or has another number of entries than its rows.
    """
    value = model.rows_value or ""
    found: list[dict[str, Array]] = [{} for _ in parts]
    for name, array in arrays.items():
        axes = model.row_axes(name)
        if len(axes) > 1 and (len(parts) > 1 or parts[0].model is not model):
            raise ValueError(
                f"{where}: input {name!r} follows {value!r} along axes {sorted(axes)} and can't "
                "be cut into chunks; call run() chunk by chunk"
            )
        if len(axes) != 1:
            for inputs in found:
                inputs[name] = array
            continue
        ((axis, rows),) = axes.items()
        sizes = [part.bound(rows, value) for part in parts]
        if array.ndim <= axis or min(sizes) < 0 or array.shape[axis] != sum(sizes):
            raise ValueError(
                f"{where}: input {name!r} has shape {array.shape}, expected {sum(sizes)} entries "
                f"along axis {axis}"
            )
        begin = 0
        for part, inputs, size in zip(parts, found, sizes, strict=True):
            taken = array[(*[slice(None)] * axis, slice(begin, begin + size))]
            port = part.model.inputs.get(name)
            length = None if port is None else port.dims[axis]
            inputs[name] = taken if length is None else padded(taken, length, axis)
            begin += size
    return found


def leading(arrays: Sequence[Array], axis: int = 0) -> int:
    """The number of rows that arrays agree on, or 1."""
    counts = {array.shape[axis] for array in arrays if array.ndim > axis}
    return int(counts.pop()) if len(counts) == 1 else 1


def padded(array: Array, length: int, axis: int) -> Array:
    """Entries along an axis, with zeros after them up to a length."""
    if array.shape[axis] >= length:
        return array
    result = np.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), array.dtype)
    result[(*[slice(None)] * axis, slice(array.shape[axis]))] = array
    return result


def joined(
    parts: Sequence[Chunk], outputs: Sequence[Mapping[str, Array]], model: Model
) -> dict[str, Array]:
    """The last chunk's outputs; of one that follows the rows along one axis, the valid entries of
    all chunks.
    """
    results = dict(outputs[-1])
    for name in model.outputs:
        axes = model.row_axes(name)
        if len(axes) == 1:
            ((axis, rows),) = axes.items()
            before = [slice(None)] * axis
            valid = [
                made[name][(*before, slice(part.bound(rows, model.rows_value or "")))]
                for part, made in zip(parts, outputs, strict=True)
            ]
            results[name] = np.concatenate(valid, axis=axis)
    return results


def check_joinable(where: str, model: Model, length: int, count: int) -> None:
    """Refuse to guess which outputs of an older export follow the rows.

    Raises:
        ValueError: an output might, and the rows are not one whole chunk.
    """
    if model.outputs_described or count == length:
        return
    for name, port in model.outputs.items():
        if length in port.dims:
            raise ValueError(
                f"{where}: {model.path} does not say whether output {name!r}, {port}, has an entry "
                "for each row (an older onnx-iron wrote it); export the model again, or call run() "
                "chunk by chunk"
            )


def check_whole(where: str, model: Model, length: int, count: int) -> None:
    """Refuse to cut what only makes sense as a whole.

    Raises:
        ValueError: the rows are more than one chunk.
    """
    if model.whole and count > length:
        raise ValueError(
            f"{where}: {count} rows, expected {length} at most: each row of {model.path} depends "
            "on all others, so that they can't be cut into chunks; export with a larger context, "
            "or shorten the text"
        )


def fits_padded(model: Model, arrays: Mapping[str, Array]) -> bool:
    """Whether inputs have fewer rows than the model takes, and would fit with zeros after them."""
    shorter = False
    for name, array in arrays.items():
        port = model.inputs.get(name)
        if port is None or name in model.values:
            continue
        axes = model.row_axes(name)
        if len(array.shape) != len(port.dims) or len(axes) > 1:
            return False
        for axis, (size, dim) in enumerate(zip(array.shape, port.dims, strict=True)):
            if dim is not None and size != dim:
                if axis not in axes or not 0 < size < dim:
                    return False
                shorter = True
    return shorter


def same_outputs(model: Model, other: Model) -> bool:
    """Whether ``other`` gives for one row what ``model`` would."""
    value = model.rows_value or ""
    if model.outputs.keys() != other.outputs.keys() or other.rows_value is not None:
        return False
    for name, port in model.outputs.items():
        dims = list(port.dims)
        for axis, rows in model.row_axes(name).items():
            dims[axis] = rows.evaluate({value: 1})
        if other.outputs[name].dims != tuple(dims) or other.outputs[name].dtype != port.dtype:
            return False
    written = {name for name, state in model.states.items() if state.output is not None}
    return written == {name for name, state in other.states.items() if state.output is not None}


def one_row_inputs(model: Model, other: Model) -> bool:
    """Whether ``other`` takes one row of what ``model`` takes."""
    value = model.rows_value or ""
    if not other.inputs.keys() <= model.inputs.keys():
        return False
    for name, port in other.inputs.items():
        dims = list(model.inputs[name].dims)
        for axis, rows in model.row_axes(name).items():
            dims[axis] = rows.evaluate({value: 1})
        if port.dims != tuple(dims) or port.dtype != model.inputs[name].dtype:
            return False
    return True
