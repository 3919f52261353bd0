"""What a design is asked for, and who makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.design import Buffer, Design, Refusal, Role
from onnx_iron.kernels.designs.device import Device
from onnx_iron.operators.base import Kind, Op, Shape, Spec


class RefusedError(Exception):
    """No design, for the reason given."""


@dataclass(frozen=True)
class Request:
    """An operator with its operands' shapes, for a device.

    Attributes:
        specs: of each input that is given, and of each output, by name.
        constants: values of inputs that are known now.
    """

    op: Op
    device: Device
    specs: Mapping[str, Spec]
    constants: Mapping[str, Array] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.specs

    def shape(self, name: str) -> Shape:
        return self.specs[name][0]

    def size(self, name: str) -> int:
        return int(np.prod(self.shape(name), dtype=np.int64))

    def buffer(self, name: str, role: Role) -> Buffer:
        shape, dtype = self.specs[name]
        return Buffer(name, dtype.name, shape, role)

    def inputs(self, *names: str) -> tuple[Buffer, ...]:
        """The buffers of those inputs that are given."""
        return tuple(self.buffer(name, Role.INPUT) for name in names if self.has(name))

    def outputs(self, *names: str) -> tuple[Buffer, ...]:
        return tuple(self.buffer(name, Role.OUTPUT) for name in names)

    def whole_vectors(self, what: str, length: int) -> None:
        """Refuse a length that is no whole number of vectors."""
        if length % self.device.lanes:
            raise RefusedError(f"{what} {length} is no multiple of {self.device.lanes} lanes")


Maker: TypeAlias = Callable[[Request], Design]

MAKERS: dict[str, Maker] = {}


def makes(*operators: str) -> Callable[[Maker], Maker]:
    """Enters the function that makes these operators' designs."""

    def enter(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(operators, maker))
        return maker

    return enter


def design_for(
    op: Op,
    specs: Sequence[Spec | None],
    device: Device,
    constants: Mapping[str, Array] | None = None,
) -> Design | Refusal:
    """The design that runs an operator on a device, or why there is none.

    Args:
        specs: shapes and dtypes of the inputs in order, None for one that is omitted.
        constants: values of inputs that are known now, by name.

    Raises:
        TypeError, ValueError: inputs that the operator does not take.
    """
    results = op.infer(specs)
    given = {
        declared.name: spec
        for declared, spec in zip(op.inputs, specs, strict=False)
        if spec is not None
    }
    if op.name not in MAKERS:
        return Refusal(f"{op.name} has no design")
    for declared in op.inputs:
        if declared.kind in (Kind.T, Kind.T_OR_FLOAT32) and declared.name in given:
            dtype = given[declared.name][1]
            if dtype != BFLOAT16:
                return Refusal(
                    f"{op.stem}: {declared.name} is {dtype.name}; the kernels take bfloat16"
                )
    if any(0 in spec[0] for spec in given.values()):
        return Refusal(f"{op.stem}: an operand without elements")
    request = Request(
        op, device, {**given, **dict(zip(op.outputs, results, strict=True))}, constants or {}
    )
    try:
        return checked(MAKERS[op.name](request))
    except RefusedError as refused:
        return Refusal(f"{op.stem}: {refused}")


def first_that_fits(designs: Iterable[Design]) -> Design:
    """The first of the designs that its device has room for; else the last, to be refused."""
    last = None
    for design in designs:
        last = design
        if isinstance(checked(design), Design):
            return design
    assert last is not None
    return last
