"""A design's instructions in mlir-aie's form, transactions: what cores are told, the shims' walks.

What reads them back is aiebu, as Debian ships it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx_iron.kernels.designs.configuration import numbers
from onnx_iron.kernels.designs.design import Design, Direction
from onnx_iron.kernels.designs.schedule import Descriptor, schedule

# Kinds of instructions; the first word of each.
WRITE, BLOCK, PATCH, AWAIT = 0x00, 0x01, 0x81, 0x80
HEAD_BYTES = 16

# Registers of a column: what a core is told begins here, a shim's descriptors and its queues there.
_COLUMN = 25  # the bits below are an address in the column
_TOLD = 2 << 20 | 0x400
_DESCRIPTORS, _DESCRIPTOR_BYTES = 0x1D000, 0x20
_VALID = 1 << 25
_QUEUES = {Direction.OUT: 0x1D204, Direction.IN: 0x1D214}


def patch(buffer: int, offset: int, register: int = _DESCRIPTORS + 4) -> list[int]:
    """What puts the address of a buffer's byte into a descriptor."""
    return [PATCH, 48, 0, 0, 0, 0, register, 0, buffer, 0, offset, 0]


def write(register: int, word: int) -> list[int]:
    return [WRITE, 0, register, 0, word, 24]


def stream(body: Sequence[Sequence[int]]) -> bytes:
    """Instructions under their header: for a machine of 6 rows and 4 columns, of a memory tile
    each; how many there are, and how many bytes with it.
    """
    words = [word for instruction in body for word in instruction]
    head = [0x06030100, 0x104, len(body), HEAD_BYTES + 4 * len(words)]
    return struct.pack(f"<{4 + len(words)}I", *(w % (1 << 32) for w in (*head, *words)))


def descriptor_words(walk: Descriptor, item_bytes: int) -> list[int]:
    """A shim's descriptor: its length, room for an address, sizes and strides in words. It has no
    size for the third dimension, which ends where the length is over.
    """
    per_word = 4 // item_bytes
    sizes, strides = walk.in_four(item_bytes)
    sizes[3] //= per_word
    steps = [max(stride // per_word, 1) - 1 for stride in (*strides[:3], 1)]
    linear = not walk.most and sizes[2] == sizes[1] == 1
    wraps = [0, 0] if linear else sizes[3:1:-1]
    return [
        walk.words(item_bytes) // sizes[0],
        *(0, 0),
        wraps[0] << 20,
        wraps[1] << 20 | steps[2],
        steps[1],
        (sizes[0] - 1) << 20 | steps[0],
        _VALID,
    ]


def instructions(design: Design, values: Mapping[str, int]) -> bytes:
    """What a run of a design is told, for a call's values."""
    body = []
    for column in range(len(design.columns) if design.told else 0):
        for at, word in enumerate(numbers(design, column, values)):
            body.append(write(column << _COLUMN | _TOLD + 4 * at, word))
    names = [buffer.name for buffer in design.buffers]
    streams = {stream.name: stream for stream in design.streams}
    for phase in schedule(design, values):
        for number, walk in enumerate(phase):
            item_bytes = design.buffer(walk.buffer).item_bytes
            column = walk.column << _COLUMN
            register = column | _DESCRIPTORS + _DESCRIPTOR_BYTES * (number % 16)
            body.append([BLOCK, 0, register, 48, *descriptor_words(walk, item_bytes)])
            buffer, offset = names.index(walk.buffer), walk.offset * item_bytes
            body.append(patch(buffer, offset, register + 4))
            body.append(write(column | _QUEUES[streams[walk.stream].direction], number % 16))
        body += [[AWAIT, 16, walk.column << 16, 0x10100] for walk in phase]
    return stream(body)


@dataclass
class Read:
    """What a disassembly says.

    Attributes:
        written: registers and their words, in order.
        walks: by descriptor, its words, and the buffer and the byte that its address is.
        awaited: how many times something is.
    """

    written: list[tuple[int, int]]
    walks: list[tuple[int, list[int], int, int]]
    awaited: int


_LINE = re.compile(r"^(XAIE_IO_[A-Z_0-9]+)(?:\.(\d+))?\s+(.*)$")


def read(text: str) -> Read:
    """Take apart what ``aiebu-dump -d`` prints."""
    found = Read([], [], 0)
    block: list[int] = []
    for kind, part, rest in _lines(text):
        given = [int(n, 0) for n in re.findall(r"0x[0-9a-f]+|\d+", rest)]
        match kind.removeprefix("XAIE_IO_"):
            case "WRITE":
                found.written.append((given[0], given[1]))
            case "BLOCKWRITE":
                block = [given[0]] if part is None else [*block, given[0]]
            case "CUSTOM_OP_DDR_PATCH":
                register, buffer, offset = given
                assert register == block[0] + 4
                found.walks.append((block[0], block[1:], buffer, offset))
            case "CUSTOM_OP_TCT":
                found.awaited += 1
            case other:
                raise AssertionError(f"an instruction that nobody wrote: {other}")
    return found


def _lines(text: str) -> Iterator[tuple[str, str | None, str]]:
    for line in text.splitlines():
        if match := _LINE.match(line.strip()):
            yield match[1], match[2], match[3]
