"""The external data file that holds a model's weights, written one tensor at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from onnx_iron.dtypes import BFLOAT16, Array, onnx_type
from onnx_iron.graph.parts import Weight

# Called with bytes done, bytes in all, and the name of what is being written.
Progress = Callable[[int, int, str], None]

# Pages, so that a runtime can map any one tensor by itself.
ALIGNMENT = 4096
# Smaller tensors are kept in the model file itself.
INLINE_BYTES = 1024
# Of a tensor, so many bytes at each of three places tell whose it is.
BLOCK = 4096


@dataclass(frozen=True)
class Placed:
    """Where a weight is in the external data file."""

    location: str
    offset: int
    length: int


def place(weights: Mapping[str, Weight], location: str) -> dict[str, Placed]:
    """Lay the weights out in order, each at a multiple of :data:`ALIGNMENT`."""
    placed, offset = {}, 0
    for name, weight in weights.items():
        if weight.nbytes > INLINE_BYTES:
            placed[name] = Placed(location, offset, weight.nbytes)
            offset += -(-weight.nbytes // ALIGNMENT) * ALIGNMENT
    return placed


@dataclass(frozen=True)
class Written:
    """A weights file: its size in bytes, the digest of all of it, and the digest of each tensor's
    sample by its place."""

    size: int
    sha256: str
    samples: dict[int, bytes]


def write(
    path: Path,
    weights: Mapping[str, Weight],
    placed: Mapping[str, Placed],
    progress: Progress | None = None,
) -> Written:
    """Write the external data file, one tensor at a time."""
    total = sum(p.length for p in placed.values())
    done = at = 0
    whole = hashlib.sha256()
    samples: dict[int, bytes] = {}
    with path.open("wb") as file:
        for name, where in placed.items():
            if progress is not None:
                progress(done, total, name)
            data = raw(weights[name]).data
            file.seek(where.offset)
            file.write(data)
            whole.update(bytes(where.offset - at))
            whole.update(data)
            sample = hashlib.sha256()
            for begin, end in sampled(len(data)):
                sample.update(data[begin:end])
            samples[where.offset] = sample.digest()
            done, at = done + where.length, where.offset + where.length
            del data  # before the next one is loaded
    if progress is not None:
        progress(total, total, path.name)
    return Written(at, whole.hexdigest(), samples)


def sampled(length: int) -> list[tuple[int, int]]:
    """The parts of a tensor of so many bytes that its sample has: its two ends and its middle."""
    starts = sorted({0, length // 2 // BLOCK * BLOCK, max(0, length - BLOCK)})
    return [(start, min(start + BLOCK, length)) for start in starts]


def same(one: Weight, other: Weight) -> bool:
    """Two weights have the same elements. Those of one object or one array are not loaded."""
    if one is other:
        return True
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.array is not None and other.array is not None:
        places = [(a.ctypes.data, a.strides) for a in (one.array, other.array)]
        if places[0] == places[1]:
            return True
    return _digest(one) == _digest(other)


def _digest(weight: Weight) -> bytes:
    return hashlib.sha256(raw(weight).data).digest()


def raw(weight: Weight) -> Array:
    """A weight's bytes as ONNX stores them: little-endian, row by row."""
    array = np.ascontiguousarray(weight.load())
    if array.dtype == BFLOAT16:
        array = array.view(np.uint16)
    flat = array.reshape(-1)
    return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8)


def initializer(name: str, weight: Weight, where: Placed | None) -> onnx.TensorProto:
    """A weight as an initializer: with its data, or with the place of it."""
    tensor = TensorProto(name=name, data_type=onnx_type(weight.dtype), dims=weight.shape)
    if where is None:
        tensor.raw_data = raw(weight).tobytes()
        return tensor
    tensor.data_location = TensorProto.EXTERNAL
    for key in ("location", "offset", "length"):
        tensor.external_data.add(key=key, value=str(getattr(where, key)))
    return tensor
