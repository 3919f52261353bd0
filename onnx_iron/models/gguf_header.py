"""What stands before the tensor data of a GGUF file: its metadata, and where each tensor is.

The file is untrusted: every count, length and offset is held against the size of the file, and
against what a header may take, before anything of that size is read or allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT, MAX_ALIGNMENT = 32, 1 << 16

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
# Far above any model's; together they bound the objects that a header is turned into.
MAX_HEADER_BYTES = 64 << 20
MAX_KEYS, MAX_TENSORS = 1 << 16, 1 << 16
# The fewest bytes that a key with its value, and a tensor's description, can take.
_LEAST_ENTRY, _LEAST_TENSOR = 13, 24


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor is: ``shape`` in numpy's order, ``offset`` from the file's first byte."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """A GGUF file's metadata, and its tensors by name, both in the file's order."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def read_header(buffer: memoryview, source: str) -> Header:
    """Read the header of the GGUF file whose bytes are ``buffer``.

    Raises:
        ValueError: The bytes are not a whole, little-endian GGUF file of version 2 or 3; the text
            begins with ``source``.
    """
    cursor = _Cursor(buffer, source)
    if bytes(buffer[:4]) != MAGIC:
        raise cursor.error(
            f"begins with {bytes(buffer[:4])!r}, expected {MAGIC!r}; it is not a GGUF file"
        )
    cursor.position = 4
    version = cursor.scalar("I", "the version")
    if version not in VERSIONS:
        order = " (a big-endian file)" if version and version & 0xFFFF == 0 else ""
        raise cursor.error(
            f"version is {version}{order}, expected 2 or 3 in little-endian order; convert the "
            "model again with a current converter"
        )
    tensor_count = cursor.count("Q", _LEAST_TENSOR, "the number of tensors", MAX_TENSORS)
    entry_count = cursor.count("Q", _LEAST_ENTRY, "the number of metadata keys", MAX_KEYS)

    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.string("a metadata key")
        if key in metadata:
            raise cursor.error(f"metadata key {key!r} occurs twice, expected once")
        metadata[key] = cursor.value(cursor.scalar("I", f"the type of {key!r}"), key)

    descriptions = [_describe(cursor) for _ in range(tensor_count)]
    start = _align(cursor.position, _alignment(metadata, cursor), cursor)
    tensors: dict[str, TensorInfo] = {}
    for info in _place(descriptions, start, cursor):
        if info.name in tensors:
            raise cursor.error(f"tensor {info.name!r} occurs twice, expected once")
        tensors[info.name] = info
    return Header(metadata, tensors)


class _Cursor:
    """Reads values one after another, and refuses to pass the end of the file."""

    def __init__(self, buffer: memoryview, source: str) -> None:
        self.buffer = buffer
        self.source = source
        self.position = 0

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self.source}: {text}")

    def advance(self, size: int, what: str) -> int:
        """Return the offset of the next ``size`` bytes, and pass over them."""
        at, left = self.position, len(self.buffer) - self.position
        if size > left:
            raise self.error(
                f"{what} needs {size} bytes at byte {at}, and {max(left, 0)} are left; the file "
                "is cut short or damaged, download it again"
            )
        if at + size > MAX_HEADER_BYTES:
            raise self.error(
                f"{what} needs {size} bytes at byte {at}, expected a header of {MAX_HEADER_BYTES} "
                "bytes at most; the file is damaged"
            )
        self.position += size
        return at

    def scalar(self, form: str, what: str) -> Any:
        at = self.advance(struct.calcsize(f"<{form}"), what)
        return struct.unpack_from(f"<{form}", self.buffer, at)[0]

    def count(self, form: str, least: int, what: str, limit: int | None = None) -> int:
        """Read how many items follow, each of them at least ``least`` bytes."""
        count = int(self.scalar(form, what))
        most = (len(self.buffer) - self.position) // least
        if count > most:
            raise self.error(
                f"{what} is {count}, and the rest of the file has room for {most} at most; the "
                "file is cut short or damaged, download it again"
            )
        if limit is not None and count > limit:
            raise self.error(f"{what} is {count}, expected {limit} at most; the file is damaged")
        return count

    def string(self, what: str) -> str:
        size = int(self.scalar("Q", f"the length of {what}"))
        at = self.advance(size, what)
        try:
            return str(self.buffer[at : at + size], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} at byte {at} is not UTF-8: {error.reason}") from None

    def value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self.string(what)
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind], what)
        if kind == _ARRAY:
            return self.array(what)
        raise self.error(f"{what} has the type {kind}, expected one of GGUF's, 0..12")

    def array(self, what: str) -> list[Any]:
        kind = int(self.scalar("I", f"the element type of {what}"))
        if kind == _STRING:
            return [self.string(what) for _ in range(self.count("Q", 8, f"the length of {what}"))]
        if kind not in _SCALARS:
            raise self.error(f"{what} is an array of type {kind}, expected numbers or strings")
        dtype = np.dtype(_SCALARS[kind]).newbyteorder("<")
        count = self.count("Q", dtype.itemsize, f"the length of {what}")
        at = self.advance(count * dtype.itemsize, what)
        values: list[Any] = np.frombuffer(self.buffer, dtype, count, at).tolist()
        return values


def _alignment(metadata: dict[str, Any], cursor: _Cursor) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise cursor.error(
            f"general.alignment is {value!r}, expected a power of two, {MAX_ALIGNMENT} at most"
        )
    return value


def _align(position: int, alignment: int, cursor: _Cursor) -> int:
    start = -(-position // alignment) * alignment
    return min(start, max(len(cursor.buffer), position))


def _describe(cursor: _Cursor) -> tuple[str, list[int], int, int]:
    """Read one tensor's name, dimensions (fastest first), type and offset into the data."""
    name = cursor.string("a tensor's name")
    rank = int(cursor.scalar("I", f"the rank of tensor {name!r}"))
    if not 1 <= rank <= MAX_DIMENSIONS:
        raise cursor.error(f"tensor {name!r} has rank {rank}, expected 1..{MAX_DIMENSIONS}")
    dims = [int(cursor.scalar("Q", f"a dimension of tensor {name!r}")) for _ in range(rank)]
    kind = int(cursor.scalar("I", f"the type of tensor {name!r}"))
    return name, dims, kind, int(cursor.scalar("Q", f"the offset of tensor {name!r}"))


def _place(
    descriptions: list[tuple[str, list[int], int, int]], start: int, cursor: _Cursor
) -> Iterator[TensorInfo]:
    """Turn descriptions into tensors whose bytes are known to be in the file."""
    size = len(cursor.buffer)
    for name, dims, kind, offset in descriptions:
        try:
            quantization = GGMLQuantizationType(kind)
            block, block_bytes = GGML_QUANT_SIZES[quantization]
        except (KeyError, ValueError):
            raise cursor.error(
                f"tensor {name!r} has the quantisation type {kind}, which the installed package "
                "gguf doesn't know; update it (pip install -U gguf), or quantise the model to Q8_0"
            ) from None
        if min(dims) < 1 or dims[0] % block:
            raise cursor.error(
                f"tensor {name!r} is {tuple(reversed(dims))} in {quantization.name}, expected "
                f"positive sizes and rows of whole blocks of {block}"
            )
        nbytes = block_bytes
        for length in (dims[0] // block, *dims[1:]):
            nbytes *= length
        if start + offset + nbytes > size:
            raise cursor.error(
                f"tensor {name!r} ends at byte {start + offset + nbytes}, and the file has "
                f"{size}; the file is cut short or damaged, download it again"
            )
        yield TensorInfo(name, tuple(reversed(dims)), quantization, start + offset, nbytes)
