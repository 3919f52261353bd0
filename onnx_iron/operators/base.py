"""What an operator is: declared once as a class, read by everything else."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, TypeAlias

import numpy as np

from onnx_iron.dtypes import FLOAT32, FLOATS, INDICES, INT32, Array
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.trace import OPERATORS, Operand, as_number, current_trace, float_dtype
from onnx_iron.graph.value import Value
from onnx_iron.operators.body import Body

DOMAIN = "onnx_iron"
VERSION = 1

Shape: TypeAlias = tuple[int, ...]
Spec: TypeAlias = tuple[Shape, np.dtype[Any]]
Attribute: TypeAlias = int | float | str


class Kind(Enum):
    """Which dtypes an input takes; its value is how the documentation says it."""

    T = "T"  # float32 or bfloat16, the same for all inputs of this kind
    T_OR_FLOAT32 = "T or float32"
    INDEX = "int32 or int64"
    SCALAR = "int32 scalar"  # a per-call integer


@dataclass
class In:
    """An input of an operator. The class attribute's name is the input's."""

    kind: Kind = Kind.T
    optional: bool = False
    name: str = ""


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


class Op:
    """An operator: a frozen dataclass whose ``In`` members are the inputs, in order, and whose
    fields are the attributes.

    A subclass gives ``shape`` (output shapes from input shapes, or a ValueError), ``reference``
    (plain numpy), ``body`` (the same in standard ONNX operators) and ``cases``. The two ways to
    compute it are written apart so that each checks the other.
    """

    name: ClassVar[str]
    inputs: ClassVar[tuple[In, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ("y",)
    cases: ClassVar[tuple[Case, ...]] = ()
    # Attributes that a function body reads when it is built, not by reference when it runs.
    built_in: ClassVar[tuple[str, ...]] = ()
    # The opset that ``standard`` needs.
    standard_opset: ClassVar[int] = 21
    # Each output element depends on the input elements at its own place alone.
    elementwise: ClassVar[bool] = False
    # It moves elements and computes nothing.
    moves: ClassVar[bool] = False
    # Pairs of an input and an output that may be one buffer: a state, updated in place.
    updates: ClassVar[tuple[tuple[str, str], ...]] = ()
    # Operations for an element of the first output, about; ``flops`` where it takes more to say.
    flops_each: ClassVar[int] = 1
    # What only changes speed, by name; a backend may take or leave it.
    tunables: ClassVar[tuple[str, ...]] = ()
    # What its steps are called: the function's name.
    stem: ClassVar[str] = ""
    # The name that its files have in every layer: this one's, the kernels' and the design's.
    file: ClassVar[str] = ""
    # It sums over the last axis, so that axis can't hold padding.
    reduces_last_axis: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "stem" not in vars(cls):
            # RMSNorm is rms_norm: a capital starts a word where a small letter is beside it.
            cls.stem = re.sub(
                r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.name
            ).lower()
        if "file" not in vars(cls):
            cls.file = cls.__module__.rpartition(".")[2]
        found = []
        for name, member in vars(cls).items():
            if isinstance(member, In):
                member.name = name
                found.append(member)
        cls.inputs = tuple(found) or cls.inputs
        if not cls.name.startswith("_"):
            OPERATORS[cls.name] = cls

    # -- what a subclass says ---------------------------------------------------------------

    def shape(self, *shapes: Any) -> Any:
        """The outputs' shapes: a shape, or a tuple of them. None stands for an omitted input.

        Raises:
            ValueError: shapes that do not fit, naming the operand.
        """
        raise NotImplementedError

    def reference(self, *operands: Any) -> Any:
        """The result in numpy: float32 inside, one rounding; an array or a tuple of them."""
        raise NotImplementedError

    def body(self, g: Body, *names: Any) -> Any:
        """Add the computation in standard ONNX operators to ``g``; returns the outputs' names."""
        raise NotImplementedError

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        """What of the input shapes the function body depends on, as a word; empty if nothing."""
        return ""

    def standard(self, g: Body, *names: Any) -> Any:
        """As ``body``, preferring a newer standard operator made for the purpose."""
        return self.body(g, *names)

    def check_call(self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> None:
        """Check the integers that only a call knows.

        Args:
            shapes: of the inputs that are given, by name.
            values: the elements of those that hold integers, by name.

        Raises:
            ValueError: one is out of its range.
        """

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        """Additions and multiplications of a call, about."""
        return 0 if self.moves else self.flops_each * math.prod(output)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        """Elements read and written by a call, where that is less than all operands have."""
        return None

    # -- derived ----------------------------------------------------------------------------

    def infer(self, specs: Sequence[Spec | None]) -> tuple[Spec, ...]:
        """Check the inputs' dtypes and shapes; returns the outputs' shapes and dtypes.

        Raises:
            TypeError: a dtype that the operator does not take.
            ValueError: a missing input, too many of them, or shapes that do not fit.
        """
        if len(specs) > len(self.inputs):
            raise ValueError(
                f"{self.name} takes {len(self.inputs)} inputs at the most, not {len(specs)}"
            )
        padded = [*specs, *[None] * (len(self.inputs) - len(specs))]
        dtype: np.dtype[Any] | None = None
        for declared, spec in zip(self.inputs, padded, strict=True):
            if spec is None:
                if not declared.optional:
                    raise ValueError(f"{self.name}.{declared.name} is missing")
                continue
            dtype = self._check_dtype(declared, spec, dtype)
        shapes = self.shape(*(spec[0] if spec else None for spec in padded))
        if len(self.outputs) == 1:
            shapes = (shapes,)
        result = FLOAT32 if dtype is None else dtype
        return tuple((tuple(shape), result) for shape in shapes)

    def _check_dtype(
        self, declared: In, spec: Spec, dtype: np.dtype[Any] | None
    ) -> np.dtype[Any] | None:
        shape, given = spec
        where = f"{self.name}.{declared.name}"
        if declared.kind is Kind.SCALAR:
            if given != INT32 or int(np.prod(shape)) != 1:
                raise TypeError(f"{where} is {given.name} {shape}; it must be one int32")
        elif declared.kind is Kind.INDEX:
            if given not in INDICES:
                raise TypeError(f"{where} is {given.name}; it must be int32 or int64")
        elif given not in FLOATS:
            raise TypeError(f"{where} is {given.name}; it must be float32 or bfloat16")
        elif declared.kind is Kind.T:
            if dtype is not None and given != dtype:
                raise TypeError(
                    f"{where} is {given.name}, the other operands are {dtype.name}; "
                    "all must have one dtype"
                )
            return given
        elif dtype is not None and given not in (dtype, FLOAT32):
            raise TypeError(f"{where} is {given.name}; it must be {dtype.name} or float32")
        return dtype

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        """The bounds that an output takes from its operands.

        Raises:
            ValueError: a bound along an axis that is summed over, or two bounds that differ.
        """
        bounds: dict[int, Value] = {}
        for operand in operands:
            if not isinstance(operand, Handle):
                continue
            for axis, rows in operand.valid.items():
                if self.reduces_last_axis and axis == operand.ndim - 1:
                    raise ValueError(
                        f"{self.name}: {operand.name} is bounded by {rows} along its last axis, "
                        "which is summed over, padding and all"
                    )
                placed = len(shape) - operand.ndim + axis
                if shape[placed] != operand.shape[axis]:
                    raise ValueError(
                        f"{self.name}: {operand.name} is bounded by {rows} along axis {axis}, "
                        f"whose one entry can't stand for {shape[placed]}"
                    )
                if bounds.setdefault(placed, rows) != rows:
                    raise ValueError(
                        f"{self.name}: {operand.name} is bounded by {rows} along axis {axis}, "
                        f"another operand by {bounds[placed]}"
                    )
        return bounds

    @classmethod
    def attribute_fields(cls) -> dict[str, dataclasses.Field[Any]]:
        """The attributes' fields by name."""
        return {f.name: f for f in dataclasses.fields(typing.cast(Any, cls))}

    def attributes(self) -> dict[str, Attribute]:
        """The ONNX attributes; one that is None is absent."""
        values = {name: getattr(self, name) for name in self.attribute_fields()}
        return {
            name: int(value) if isinstance(value, bool) else value
            for name, value in values.items()
            if value is not None
        }

    @classmethod
    def onnx_attributes(cls) -> dict[str, tuple[type, Attribute | None]]:
        """Each ONNX attribute's type (int, float or str) and its default, None where absent."""
        hints = typing.get_type_hints(cls)
        found: dict[str, tuple[type, Attribute | None]] = {}
        for name, declared in cls.attribute_fields().items():
            kind = _plain_type(hints[name])
            onnx_type: type = float if kind is float else str if issubclass(kind, str) else int
            default = declared.default
            found[name] = (onnx_type, None if default is None else onnx_type(default))
        return found

    @classmethod
    def defaults(cls) -> dict[str, Attribute]:
        """The ONNX attributes that have a default."""
        return {k: v for k, (_, v) in cls.onnx_attributes().items() if v is not None}

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Op:
        """The operator with a node's attributes.

        Raises:
            ValueError: an attribute that it does not have, or a value out of range.
            TypeError: a value of another type.
        """
        known = cls.onnx_attributes()
        unknown = sorted(set(attributes) - set(known))
        if unknown:
            raise ValueError(
                f"{cls.name} has no attribute {unknown[0]!r}; it has {sorted(known) or 'none'}"
            )
        return cls(**cls._converted_fields(attributes))

    @classmethod
    def _converted_fields(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        hints = typing.get_type_hints(cls)
        return {k: _converted(f"{cls.name}.{k}", v, hints[k]) for k, v in values.items()}

    def variant(self, shapes: Sequence[Shape | None]) -> str:
        """Names the function body for these inputs among all of this operator's bodies."""
        given = [
            declared.name
            for declared, shape in zip(self.inputs, shapes, strict=False)
            if declared.optional and shape is not None
        ]
        built = [f"{name}_{self.attributes().get(name)}" for name in self.built_in]
        extra = self.shape_variant(shapes)
        return ".".join([*given, *built, *([extra] if extra else [])])

    @classmethod
    def step(cls, *operands: Any, **named: Any) -> Any:
        """Record a step in the graph being traced.

        Args:
            operands: the inputs in order; handles, states, weights, arrays, per-call values, or
                numbers, which take the other operands' dtype. Later ones may be named.
            named: further inputs, the attributes, and the tunables.

        Returns:
            The output's handle, or a tuple of them.

        Raises:
            TypeError: an unknown keyword, an operand of another type or dtype, or a view.
            ValueError: shapes that do not fit.
        """
        trace = current_trace(f"{cls.name}.step()")
        given = cls._bind(operands, named)
        tunables = {name: named.pop(name) for name in cls.tunables if name in named}
        unknown = sorted(set(named) - set(cls.attribute_fields()))
        if unknown:
            known = sorted({*cls.attribute_fields(), *cls.tunables})
            raise TypeError(f"{cls.name} takes no {unknown[0]!r}; it takes {known}")
        for name, value in tunables.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{cls.name}: {name} is {value!r}; it must be a positive integer")
        like = float_dtype(list(given.values()))
        lifted: list[Operand] = []
        for declared in cls.inputs:
            operand = given.get(declared.name)
            if operand is None:
                lifted.append(None)
            elif declared.kind is Kind.SCALAR:
                lifted.append(_scalar(f"{cls.name}.{declared.name}", operand))
            else:
                number_dtype = INT32 if declared.kind is Kind.INDEX else like
                lifted.append(trace.lift(operand, like=number_dtype))
        outputs = trace.record(cls(**cls._converted_fields(named)), lifted, tunables)
        return outputs[0] if len(outputs) == 1 else outputs

    @classmethod
    def _bind(cls, operands: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Operands by input name; takes those given by name out of ``named``."""
        if len(operands) > len(cls.inputs):
            raise TypeError(f"{cls.name} takes {len(cls.inputs)} operands, not {len(operands)}")
        names = [declared.name for declared in cls.inputs]
        given = dict(zip(names, operands, strict=False))
        for name in names:
            if name in named:
                if name in given:
                    raise TypeError(f"{cls.name}.{name} is given twice")
                given[name] = named.pop(name)
        return given


def _scalar(where: str, operand: Any) -> Value | int:
    """A per-call integer, or one known now."""
    if isinstance(operand, Value):
        return operand
    number = as_number(operand, INT32)
    if number is None:
        raise TypeError(f"{where} is {operand!r}; it must be a per-call value or an integer")
    return int(number)


def _converted(where: str, value: Any, hint: Any) -> Any:
    """An attribute's value as the field's type: from a call, or from a node (int, float or str).

    Raises:
        TypeError: a value of another type.
        ValueError: none of an enumeration's values.
    """
    kinds = [t for t in (typing.get_args(hint) or (hint,)) if t is not type(None)]
    if typing.get_origin(hint) is tuple:
        kind = kinds[0]
        values = value if isinstance(value, tuple | list) else (value,)
        return tuple(_converted(where, v, kind) for v in values)
    kind = kinds[0]
    if value is None and len(typing.get_args(hint)) > len(kinds):
        return None
    if issubclass(kind, Enum) and isinstance(value, str):
        if value not in list(kind):
            raise ValueError(f"{where} is {value!r}; expected one of {[str(k) for k in kind]}")
        return kind(value)
    whole = isinstance(value, int | np.integer)
    fits = {
        bool: whole and value in (0, 1),
        int: whole and not isinstance(value, bool),
        float: (whole or isinstance(value, float | np.floating)) and not isinstance(value, bool),
        str: isinstance(value, str),
    }
    if not fits.get(kind, False):
        raise TypeError(f"{where} is {value!r}; it must be {kind.__name__}")
    return kind(value)


def _plain_type(hint: Any) -> type:
    """The type of a hint such as ``float | None``."""
    plain: type = next(t for t in (typing.get_args(hint) or (hint,)) if t is not type(None))
    return plain


def widen(array: Array) -> Array:
    """An operand in float32, as every step computes."""
    return array.astype(np.float32)


def narrow_like(result: Array, like: Array) -> Array:
    """A result rounded once to an operand's dtype, by way of float32."""
    return result.astype(np.float32).astype(like.dtype)
