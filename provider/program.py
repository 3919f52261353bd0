"""A compiled subgraph, as it is handed to the native side."""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from typing import Any

from onnx_iron.dtypes import NUMBERS, Array
from onnx_iron.native import encode, encode_exactly, library
from onnx_iron.provider.arena import plan_spans
from onnx_iron.provider.lowering import KernelCall
from onnx_iron.provider.subgraph import Subgraph
from onnx_iron.provider.symbols import Symbol
from onnx_iron.provider.work import Work, work_of

INPUT, OUTPUT, ARENA, CONSTANT = range(4)
OMITTED = -1
INTEGER, REAL, TEXT, INTEGERS = range(4)


class Writer:
    """Writes a program as ``Recipe`` of the native side reads it: lists, each after its length."""

    def __init__(self, subgraph: Subgraph, profiled: bool = False) -> None:
        self._subgraph = subgraph
        self._profiled = profiled
        self._lowering = subgraph.lowering
        self._numbers = subgraph.numbers
        self._inputs = {name: number for number, name in enumerate(subgraph.inputs)}
        self._spans, self._held = plan_spans(subgraph.lowering, subgraph.steps, subgraph.placed)
        self._data = bytearray()
        self._constants: dict[str, int] = {}
        self._constant_code = array("q")
        self._values: dict[str, int] = {}
        self._value_code = array("q")

    def hand_over(self, request: int) -> None:
        """Give it to a request, which keeps a failure."""
        code = (ctypes.c_int64 * len(words := self.code())).from_buffer(words)
        data, general = bytes(self._data), self._subgraph.general
        library().onnx_iron_program_recipe(request, code, len(code), data, len(data), general)

    def code(self) -> array[int]:
        """The whole of it; the numbers come first, and are known last."""
        subgraph, lowering = self._subgraph, self._lowering
        body = array("q", [len(subgraph.outputs)])
        for name in subgraph.outputs:
            body.append(NUMBERS[lowering.specs[name].dtype])
            body.extend(self._rows(lowering.specs[name].shape))
        steps = array("q", [len(subgraph.steps)])
        for step in subgraph.steps:
            self._step(steps, step)
        body.append(len(self._constants))
        body.extend(self._constant_code)
        body.append(len(self._spans))
        for span in self._spans:
            body.extend((span.begin, span.end, self._numbers.row(span.bytes)))
        body.append(len(self._values))
        body.extend(self._value_code)
        body.extend(steps)
        body.append(len(subgraph.pairs))
        for pair in subgraph.pairs:
            body.extend(pair)
        numbers = self._numbers
        head = array("q", [len(shape) for shape in subgraph.shapes])
        head.append(len(numbers.rows))
        for row in numbers.rows:
            head.extend(row)
        head.append(len(numbers.answers))
        for question, answer in numbers.answers.items():
            head.extend((*question, answer))
        return head + body

    def _rows(self, numbers: Sequence[Any]) -> array[int]:
        return array("q", [len(numbers), *map(self._numbers.row, numbers)])

    def _bytes(self, content: bytes) -> tuple[int, int]:
        begin = len(self._data)
        self._data += content
        return begin, len(content)

    def _step(self, code: array[int], step: KernelCall) -> None:
        code.extend(self._bytes(encode(step.name)))
        code.extend(self._bytes(encode_exactly(step.op.name)))
        for names in (step.inputs, step.outputs):
            code.append(len(names))
            code.extend(OMITTED if name is None else self._value(name) for name in names)
        attributes = step.op.attributes()
        code.append(len(attributes))
        for name, value in attributes.items():
            code.extend(self._bytes(encode_exactly(name)))
            if isinstance(value, int | Symbol):
                code.extend((INTEGER, self._numbers.row(value)))
            elif isinstance(value, float):
                code.extend((REAL, *struct.unpack("<i", struct.pack("<f", value))))
            elif isinstance(value, str):
                code.extend((TEXT, *self._bytes(encode_exactly(value))))
            else:
                code.append(INTEGERS)
                code.extend(self._rows(value))
        # Nobody asks for it otherwise, and numbers that depend on symbols take time for each shape.
        work = work_of(step, self._lowering.specs) if self._profiled else Work(0, 0)
        code.extend(map(self._numbers.row, work))

    def _value(self, name: str) -> int:
        if name not in self._values:
            spec = self._lowering.specs[name]
            place, index, offset = self._location(name)
            known = b"" if "\0" in name else encode(name)  # a NUL is in the names of temporaries
            self._value_code.extend(self._bytes(known))
            self._value_code.append(NUMBERS[spec.dtype])
            self._value_code.extend(self._rows(spec.shape))
            self._value_code.extend((place, index, self._numbers.row(offset)))
            self._values[name] = len(self._values)
        return self._values[name]

    def _location(self, name: str) -> tuple[int, int, int]:
        """Place, index and byte offset."""
        root, offset = self._lowering.resolve(name)
        if root in self._subgraph.placed:
            return OUTPUT, self._subgraph.placed[root], offset
        if root in self._inputs:
            return INPUT, self._inputs[root], offset
        if root in self._lowering.literals:
            return CONSTANT, self._constant(root, self._lowering.literals[root]), offset
        return ARENA, self._held[root], offset

    def _constant(self, name: str, content: Array) -> int:
        if name not in self._constants:
            if content.dtype == object:
                self._constant_code.extend((0, NUMBERS[self._lowering.specs[name].dtype]))
                self._constant_code.extend(self._rows(content.reshape(-1).tolist()))
            else:
                self._constant_code.extend((1, *self._bytes(content.tobytes())))
            self._constants[name] = len(self._constants)
        return self._constants[name]
