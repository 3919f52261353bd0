"""The parts that an operator is declared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from onnx_iron.dtypes import BOOL, FLOAT32, INDICES, DType, Shape

DOMAIN = "onnx_iron"
VERSION = 1

Attribute: TypeAlias = int | float | str


class Kind(Enum):
    """Which dtypes an input takes; its value is how the documentation says it."""

    T = "T"  # float32 or bfloat16, the same for all inputs of this kind
    T_OR_FLOAT32 = "T or float32"
    FLOAT32 = "float32"  # whatever T is
    ANY = "T, int32, int64 or bool"  # what is moved and not computed with; as T, one for all
    NUMBER = "T, int32 or int64"  # as T, one for all
    BOOL = "bool"
    INDEX = "int32 or int64"
    SCALAR = "int32 scalar"  # a per-call integer


@dataclass
class In:
    """An input of an operator. The class attribute's name is the input's."""

    kind: Kind = Kind.T
    optional: bool = False
    name: str = ""


# Kinds whose dtype is one for all inputs, and the result's where an operator says nothing else.
COMMON = (Kind.T, Kind.ANY, Kind.NUMBER)
# The dtypes of kinds that no other input's dtype has a part in.
FIXED: Mapping[Kind, tuple[DType, ...]] = {
    Kind.INDEX: INDICES,
    Kind.BOOL: (BOOL,),
    Kind.FLOAT32: (FLOAT32,),
}


@dataclass(frozen=True)
class Case:
    """Shapes, attributes and per-call values that an operator is tested with."""

    shapes: Mapping[str, Shape]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{name} {'x'.join(map(str, shape))}" for name, shape in self.shapes.items()]
        parts += [f"{name}={value}" for name, value in {**self.attributes, **self.values}.items()]
        return ", ".join(parts)


@dataclass(frozen=True)
class Tolerance:
    """How far an operator's result may be from the exact one, rounded once.

    Attributes:
        float32: numbers of that dtype away.
        bfloat16: the same for the other.
        reason: why it is not 0.
        of_magnitude: the error besides, as a part of the operator's ``magnitude``.
    """

    float32: int
    bfloat16: int
    reason: str
    of_magnitude: float = 0.0


@dataclass(frozen=True)
class Limit:
    """A range that a call's integer must be in.

    Attributes:
        value: the integer; where a trace asks, a Value, or the handle of the tensor that holds it.
        low: the least one allowed.
        high: the greatest; a Value where another integer of the call sets it.
        of: the input whose size sets the range.
        size: that size.
        message: what is said of a value outside of the range.
    """

    value: Any
    low: int
    high: Any
    of: str
    size: int
    message: str
