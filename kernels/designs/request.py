"""What a design is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_iron.dtypes import Array, Shape, Spec
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.design import Access, Design, Port
from onnx_iron.kernels.designs.target import Target
from onnx_iron.operators.base import Op


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


def first_that_fits(designs: Iterable[Design]) -> Design:
    """The first of the designs that its target has room for; else the last, to be refused."""
    last = None
    for design in designs:
        last = design
        if isinstance(checked(design), Design):
            return design
    assert last is not None
    return last
