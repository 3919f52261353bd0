"""What a design is asked for, and who makes it: ``design`` of the file that the operator names."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.design import Access, Design, Port, Refusal
from onnx_iron.kernels.designs.target import Target
from onnx_iron.operators.base import Kind, Op, Shape, Spec


class RefusedError(Exception):
    """No design, for the reason given."""


@dataclass(frozen=True)
class Request:
    """An operator with its operands' shapes, for a target.

    Attributes:
        specs: of each input that is given, and of each output, by name.
        constants: values of inputs that are known now.
    """

    op: Op
    target: Target
    specs: Mapping[str, Spec]
    constants: Mapping[str, Array] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.specs

    def shape(self, name: str) -> Shape:
        return self.specs[name][0]

    def size(self, name: str) -> int:
        return int(np.prod(self.shape(name), dtype=np.int64))

    def buffer(self, name: str, access: Access) -> Port:
        shape, dtype = self.specs[name]
        return Port(name, dtype.name, shape, access)

    def inputs(self, *names: str) -> tuple[Port, ...]:
        """The buffers of those inputs that are given."""
        return tuple(self.buffer(name, Access.READ) for name in names if self.has(name))

    def outputs(self, *names: str) -> tuple[Port, ...]:
        return tuple(self.buffer(name, Access.WRITE) for name in names)

    def whole_vectors(self, what: str, length: int) -> None:
        """Refuse a length that is no whole number of vectors."""
        if length % self.target.lanes:
            raise RefusedError(f"{what} {length} is no multiple of {self.target.lanes} lanes")


Maker: TypeAlias = Callable[[Request], Design]


def maker_of(op: type[Op]) -> Maker | None:
    """What makes an operator's designs, ``design`` in the file of its name; None where it has none.

    An operator without is whole: its CPU kernel or its body runs it.
    """
    return _maker(op.file)


@functools.cache
def _maker(file: str) -> Maker | None:
    name = f"{__package__}.{file}"
    if importlib.util.find_spec(name) is None:
        return None
    maker: Maker | None = getattr(importlib.import_module(name), "design", None)
    return maker


def design_for(
    op: Op,
    specs: Sequence[Spec | None],
    target: Target,
    constants: Mapping[str, Array] | None = None,
) -> Design | Refusal:
    """The design that runs an operator on a target, or why there is none.

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
    maker = maker_of(type(op))
    if maker is None:
        return Refusal(f"{op.name} has no design: there is no kernels/designs/{op.file}.py")
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
        op, target, {**given, **dict(zip(op.outputs, results, strict=True))}, constants or {}
    )
    try:
        return checked(maker(request))
    except RefusedError as refused:
        return Refusal(f"{op.stem}: {refused}")


def first_that_fits(designs: Iterable[Design]) -> Design:
    """The first of the designs that its target has room for; else the last, to be refused."""
    last = None
    for design in designs:
        last = design
        if isinstance(checked(design), Design):
            return design
    assert last is not None
    return last
