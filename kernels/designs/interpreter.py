"""Runs designs on the host, through the host-compiled kernels; the running itself is in C++."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from onnx_iron import native
from onnx_iron.dtypes import Array, as_dtype
from onnx_iron.kernels.aie.build import interpreter_library, kernel_library
from onnx_iron.kernels.designs.design import (
    Access,
    Affine,
    Argument,
    Call,
    Design,
    Direction,
    Index,
    Stream,
    Transfer,
)

_MAGIC = 0x324E474953454431

_Item = TypeVar("_Item")


class DesignError(ValueError):
    """What the interpreter objects to: an access outside a buffer, an element nobody writes."""


def evaluate(
    design: Design,
    inputs: Mapping[str, Array],
    values: Mapping[str, int] | None = None,
    *,
    poison: int = 0xFF,
) -> dict[str, Array]:
    """The outputs, and the states as the design leaves them, for inputs and states by name.

    Raises:
        DesignError: what the design does wrong.
    """
    arrays = {
        b.name: inputs[b.name].copy()
        if b.access is Access.UPDATE
        else inputs[b.name]
        if b.access is Access.READ
        else poisoned(b.shape, b.dtype)
        for b in design.buffers
    }
    run(design, arrays, values, poison=poison)
    return {b.name: arrays[b.name] for b in design.buffers if b.access is not Access.READ}


def run(
    design: Design,
    arrays: Mapping[str, Array],
    values: Mapping[str, int] | None = None,
    *,
    poison: int = 0xFF,
) -> None:
    """Run a design on arrays by its buffers' names, writing its outputs and states.

    Args:
        poison: the byte that fills tiles before they are used; 0xFF makes bfloat16 NaN.

    Raises:
        DesignError: what the design does wrong.
        ValueError: an array that is not its buffer's, or a value that is missing.
    """
    given = dict(values or {})
    missing = [v.name for v in design.values if v.name not in given]
    if missing:
        raise ValueError(f"{design.name}: the per-call value {missing[0]} is missing")
    pointers = (ctypes.c_void_p * len(design.buffers))()
    sizes = (ctypes.c_size_t * len(design.buffers))()
    for i, buffer in enumerate(design.buffers):
        array = arrays[buffer.name]
        if array.dtype != as_dtype(buffer.dtype) or array.shape != buffer.shape:
            raise ValueError(
                f"{design.name}: {buffer.name} is {array.dtype} {array.shape}, expected "
                f"{buffer.dtype} {buffer.shape}"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"{design.name}: {buffer.name} is not contiguous")
        pointers[i], sizes[i] = array.ctypes.data, array.nbytes
    encoded = encode(design)
    try:
        native.call(
            _library().onnx_iron_run_design,
            encoded,
            ctypes.c_size_t(len(encoded)),
            str(kernel_library(design.target.generation)).encode(),
            pointers,
            sizes,
            (ctypes.c_int32 * len(design.values))(*(given[v.name] for v in design.values)),
            ctypes.c_uint8(poison),
        )
    except native.NativeError as error:
        raise DesignError(str(error)) from None


def poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    """An array whose bytes are all ones: NaN for the floats."""
    made: Array = np.empty(shape, as_dtype(dtype))
    made.reshape(-1).view(np.uint8)[...] = 0xFF
    return made


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(interpreter_library()))


def encode(design: Design) -> bytes:
    """The design in the form that the interpreter reads: names of parts resolved to numbers."""
    return _Encoder(design).encoded()


class _Encoder:
    """Writes numbers as eight bytes, texts as their length and bytes, lists after their length."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._parts: list[bytes] = []
        self._buffers = {b.name: i for i, b in enumerate(design.buffers)}
        self._values = {v.name: i for i, v in enumerate(design.values)}
        tiles = [s.name for s in design.streams] + [local.name for local in design.locals]
        self._tiles = {name: i for i, name in enumerate(tiles)}

    def encoded(self) -> bytes:
        design = self._design
        self._number(_MAGIC)
        self._text(design.name)
        for buffer in self._many(design.buffers):
            self._text(buffer.name)
            self._numbers(buffer.item_bytes, buffer.size, list(Access).index(buffer.access))
        for value in self._many(design.values):
            self._text(value.name)
            self._numbers(value.low, value.high)
        for trips in self._many(design.columns):
            self._numbers(len(trips), *trips)
        self._number(design.rows)
        for stream in self._many(design.streams):
            self._stream(stream)
        for local in self._many(design.locals):
            self._text(local.name)
            self._number(local.bytes)
        for call in self._many(design.calls):
            self._call(call)
        self._number(-1 if design.idle is None else self._values[design.idle])
        for affine in self._many(design.innermost or ()):
            self._affine(affine)
        return b"".join(self._parts)

    def _number(self, number: int) -> None:
        self._parts.append(struct.pack("<q", number))

    def _numbers(self, *numbers: int) -> None:
        for number in numbers:
            self._number(number)

    def _text(self, text: str) -> None:
        self._number(len(text.encode()))
        self._parts.append(text.encode())

    def _many(self, items: Sequence[_Item]) -> Sequence[_Item]:
        self._number(len(items))
        return items

    def _affine(self, affine: Affine) -> None:
        self._numbers(affine.constant, affine.column, affine.row)
        self._numbers(len(affine.loops), *affine.loops)
        for name, factor in self._many(affine.values):
            self._numbers(self._values[name], factor)
        self._numbers(len(affine.each), *affine.each)

    def _index(self, index: Index) -> None:
        self._affine(index.of)
        self._numbers(*(() if index.low is None else (1, index.low)) or (0,))
        self._number(0 if index.high is None else 1)
        if index.high is not None:
            self._affine(index.high)

    def _transfer(self, transfer: Transfer) -> None:
        self._numbers(self._buffers[transfer.buffer])
        self._numbers(len(transfer.sizes), *transfer.sizes)
        self._numbers(len(transfer.strides), *transfer.strides)
        for term in self._many(transfer.terms):
            self._number(term.stride)
            self._index(term.index)
        self._number(-1 if transfer.times is None else self._values[transfer.times])

    def _stream(self, stream: Stream) -> None:
        self._text(stream.name)
        self._numbers(
            int(stream.direction is Direction.OUT),
            stream.level,
            stream.bytes // stream.size,
            stream.size,
            self._design.parts(stream),
        )
        for transfer in self._many(stream.transfers):
            self._transfer(transfer)
        for size, stride in self._many(stream.arrange):
            self._numbers(size, stride)
        self._number(-1 if stream.source is None else self._tiles[stream.source])
        self._numbers(int(stream.whole), max(stream.size, stream.room))

    def _call(self, call: Call) -> None:
        self._text(call.kernel)
        self._numbers(call.level, int(call.after))
        for argument in self._many(call.arguments):
            self._argument(argument)

    def _argument(self, argument: Argument) -> None:
        match argument:
            case str():
                self._numbers(0, self._tiles[argument])
            case Index():
                self._number(1)
                self._index(argument)
            case int():
                self._numbers(2, argument)
            case float():
                self._number(3)
                self._parts.append(struct.pack("<d", argument))
