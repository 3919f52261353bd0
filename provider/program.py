"""A compiled subgraph, as it is handed to the native side."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from onnx_iron.dtypes import NUMBERS, Array
from onnx_iron.native import attribute_array, encode, library, shape_array
from onnx_iron.provider.arena import plan_arena
from onnx_iron.provider.lowering import Lowering, Step
from onnx_iron.provider.subgraph import Subgraph

INPUT, OUTPUT, ARENA, CONSTANT = range(4)
OMITTED = -1


@dataclass
class Program:
    """Steps in order, and where the bytes of every root are."""

    lowering: Lowering
    steps: list[Step]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    placed: Mapping[str, int]
    offsets: Mapping[str, int]
    pairs: list[tuple[int, int]]


def compile_program(subgraph: Subgraph) -> Program:
    """The CPU kernels' program of a subgraph."""
    return Program(
        lowering=subgraph.lowering,
        steps=subgraph.steps,
        inputs=subgraph.inputs,
        outputs=subgraph.outputs,
        placed=subgraph.placed,
        offsets=plan_arena(subgraph.lowering, subgraph.steps, subgraph.placed),
        pairs=subgraph.pairs,
    )


class Writer:
    """Hands a program over, call by call; the native side keeps the first failure."""

    def __init__(self, request: int, program: Program) -> None:
        self._request = request
        self._program = program
        self._native = library()
        self._inputs = {name: number for number, name in enumerate(program.inputs)}
        self._constants: dict[str, int] = {}
        self._values: dict[str, int] = {}

    def write(self) -> None:
        """Hand over everything."""
        program = self._program
        for number, name in enumerate(program.outputs):
            spec = program.lowering.specs[name]
            shape = shape_array(spec.shape)
            self._native.onnx_iron_program_output(
                self._request, number, NUMBERS[spec.dtype], len(shape), shape
            )
        for step in program.steps:
            self._step(step)
        for given, made in program.pairs:
            self._native.onnx_iron_program_pair(self._request, given, made)

    def _step(self, step: Step) -> None:
        inputs = [OMITTED if name is None else self._value(name) for name in step.inputs]
        outputs = [self._value(name) for name in step.outputs]
        attributes = attribute_array(step.op.attributes())
        self._native.onnx_iron_program_step(
            self._request,
            encode(step.name),
            encode(step.op.name),
            (ctypes.c_int32 * len(inputs))(*inputs),
            len(inputs),
            (ctypes.c_int32 * len(outputs))(*outputs),
            len(outputs),
            attributes,
            len(attributes),
        )

    def _value(self, name: str) -> int:
        if name not in self._values:
            spec = self._program.lowering.specs[name]
            shape = shape_array(spec.shape)
            known = b"" if "\0" in name else encode(name)  # a NUL is in the names of temporaries
            self._values[name] = self._native.onnx_iron_program_value(
                self._request, known, NUMBERS[spec.dtype], len(shape), shape, *self._location(name)
            )
        return self._values[name]

    def _location(self, name: str) -> tuple[int, int, int]:
        """Place, index and byte offset."""
        program = self._program
        root, offset = program.lowering.resolve(name)
        if root in program.placed:
            return OUTPUT, program.placed[root], offset
        if root in self._inputs:
            return INPUT, self._inputs[root], offset
        if root in program.lowering.literals:
            return CONSTANT, self._constant(root, program.lowering.literals[root]), offset
        return ARENA, 0, program.offsets[root] + offset

    def _constant(self, name: str, array: Array) -> int:
        if name not in self._constants:
            self._constants[name] = self._native.onnx_iron_program_constant(
                self._request, array.ctypes.data, array.nbytes
            )
        return self._constants[name]
