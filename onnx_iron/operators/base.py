"""What an operator is: declared once as a class, read by everything else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import FLOAT32, FLOATS, INDICES, INT32, Array, DType, Shape, Spec
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import Operand, as_number, number_dtype
from onnx_iron.graph.value import Value
from onnx_iron.operators.attributes import Attributes
from onnx_iron.operators.body import Body
from onnx_iron.operators.declaration import (
    COMMON,
    DOMAIN,
    FIXED,
    VERSION,
    Attribute,
    Case,
    In,
    Kind,
    Limit,
    Tolerance,
)

__all__ = [
    "COMMON",
    "DOMAIN",
    "OPERATORS",
    "STANDARD",
    "VERSION",
    "Attribute",
    "Case",
    "In",
    "Kind",
    "Limit",
    "Op",
    "Shape",
    "Spec",
    "Tolerance",
    "narrow_like",
    "widen",
]

# Every operator by its name; each class adds itself as it is declared.
OPERATORS: dict[str, type[Op]] = {}
# Those that are standard operators, none of the domain's.
STANDARD: dict[str, type[Op]] = {}


class Op(Attributes):
    """An operator: a frozen dataclass whose ``In`` members are the inputs, in order, and whose
    fields are the attributes.

    A subclass gives ``shape`` (output shapes from input shapes, or a ValueError), ``reference``
    (plain numpy), ``body`` (the same in standard ONNX operators), ``oracle`` (the same in float64)
    and ``cases``. The ways to compute it are written apart so that each checks the others. That is
    a whole operator; a kernel or a design is one more file of the same stem.
    """

    inputs: ClassVar[tuple[In, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ("y",)
    # The dtypes of outputs that don't have the inputs'.
    results: ClassVar[Mapping[str, DType]] = {}
    # "" where it is a standard operator, which every runtime has for every dtype: it is written as
    # that, and is none of the domain's.
    domain: ClassVar[str] = DOMAIN
    # The last input may be given any number of times, at least once.
    variadic: ClassVar[bool] = False
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
    # What its steps and its kernels are called; its module's name where it is alone in there.
    stem: ClassVar[str] = ""
    # The name that its files have in every layer: this one's, the kernels' and the design's.
    file: ClassVar[str] = ""
    # How far a result may be from the oracle's.
    tolerance: ClassVar[Tolerance] = Tolerance(0, 0, "one rounding of what IEEE 754 defines")
    # It sums over the last axis, so that axis can't hold padding.
    reduces_last_axis: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "file" not in vars(cls):
            cls.file = cls.__module__.rpartition(".")[2]
        if "stem" not in vars(cls):
            cls.stem = cls.file
        found = []
        for name, member in vars(cls).items():
            if isinstance(member, In):
                member.name = name
                found.append(member)
        cls.inputs = tuple(found) or cls.inputs
        if cls.inputs and not cls.name.startswith("_"):
            (OPERATORS if cls.domain == DOMAIN else STANDARD)[cls.name] = cls

    # -- what a subclass says ---------------------------------------------------------------

    def shape(self, *shapes: Any) -> Any:
        """The outputs' shapes: a shape, or a tuple of them. None stands for an omitted input.

        An elementwise operator of one input has its shape without saying so.

        Raises:
            ValueError: shapes that do not fit, naming the operand.
        """
        if self.elementwise and len(self.inputs) == 1:
            return shapes[0]
        raise NotImplementedError(f"{self.name} declares no shape: {self.file}.py")

    def reference(self, *operands: Any) -> Any:
        """The result in numpy: float32 inside, one rounding; an array or a tuple of them."""
        raise NotImplementedError

    def oracle(self, *operands: Any) -> Any:
        """The result in float64, by numpy or scipy: an array or a tuple of them.

        Args:
            operands: in order; floats as float64 arrays, integers as they are, None where omitted.
        """
        raise NotImplementedError

    def magnitude(self, *operands: Any) -> Any:
        """The sum of the magnitudes of what each element of the oracle's result is the sum of.

        A sum's error grows with it, also where the terms cancel.
        """
        return self.oracle(*operands)

    def body(self, g: Body, *names: Any) -> Any:
        """Add the computation in standard ONNX operators to ``g``; returns the outputs' names."""
        raise NotImplementedError

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        """What of the input shapes the function body depends on, as a word; empty if nothing."""
        return ""

    def standard(self, g: Body, *names: Any) -> Any:
        """As ``body``, preferring a newer standard operator made for the purpose."""
        return self.body(g, *names)

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        """The ranges of the integers that only a call knows; arguments as of ``check_call``."""
        yield from ()

    def check_call(self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> None:
        """Check the integers that only a call knows.

        Args:
            shapes: of the inputs that are given, by name.
            values: the elements of those that hold integers, by name.

        Raises:
            ValueError: one is out of its range.
        """
        for limit in self.limits(shapes, values):
            if not limit.low <= limit.value <= limit.high:
                raise ValueError(limit.message)

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        """Additions and multiplications of a call, about."""
        return 0 if self.moves else self.flops_each * math.prod(output)

    def elements_moved(self, shapes: Mapping[str, Shape], output: Shape) -> int | None:
        """Elements read and written by a call, where that is less than all operands have."""
        return None

    def replaceable(self, output: int, inputs: int) -> Sequence[int]:
        """The inputs, of so many, whose bytes an output may take: in an update the state's, else
        all of an elementwise operator.
        """
        if self.updates:
            names = [declared.name for declared in self.inputs]
            made = self.outputs[output]
            return [names.index(given) for given, taken in self.updates if taken == made]
        return range(inputs) if self.elementwise else ()

    # -- derived ----------------------------------------------------------------------------

    def infer(self, specs: Sequence[Spec | None]) -> tuple[Spec, ...]:
        """Check the inputs' dtypes and shapes; returns the outputs' shapes and dtypes.

        Raises:
            TypeError: a dtype that the operator does not take.
            ValueError: a missing input, too many of them, or shapes that do not fit.
        """
        inputs = self.declared(len(specs))
        if len(specs) > len(inputs):
            raise ValueError(f"{self.name} takes {len(inputs)} inputs at most, not {len(specs)}")
        padded = [*specs, *[None] * (len(inputs) - len(specs))]
        dtype: np.dtype[Any] | None = None
        for declared, spec in zip(inputs, padded, strict=True):
            if spec is None:
                if not declared.optional:
                    raise ValueError(f"{self.name}.{declared.name} is missing")
                continue
            dtype = self._check_dtype(declared, spec, dtype)
        shapes = self.shape(*(spec[0] if spec else None for spec in padded))
        if len(self.outputs) == 1:
            shapes = (shapes,)
        return tuple(
            Spec(tuple(shape), self.result_dtype(name, dtype))
            for name, shape in zip(self.outputs, shapes, strict=True)
        )

    def result_dtype(self, output: str, dtype: DType | None) -> DType:
        """An output's dtype, where the inputs' is ``dtype``."""
        return self.results.get(output, FLOAT32 if dtype is None else dtype)

    @classmethod
    def declared(cls, count: int) -> tuple[In, ...]:
        """The inputs of a step that has so many."""
        if not cls.variadic:
            return cls.inputs
        first, last = cls.inputs[:-1], cls.inputs[-1]
        more = range(1, count - len(first))
        return (*first, last, *(replace(last, name=f"{last.name}_{i}") for i in more))

    def _check_dtype(
        self, declared: In, spec: Spec, dtype: np.dtype[Any] | None
    ) -> np.dtype[Any] | None:
        shape, given = spec
        where = f"{self.name}.{declared.name}"
        if declared.kind is Kind.SCALAR:
            if given != INT32 or int(np.prod(shape)) != 1:
                raise TypeError(f"{where} is {given.name} {shape}; it must be one int32")
        elif declared.kind in FIXED:
            if given not in FIXED[declared.kind]:
                how = {Kind.BOOL: ", as comparisons give", Kind.FLOAT32: ", which to(dtype) gives"}
                wanted = f"{declared.kind.value}{how.get(declared.kind, '')}"
                raise TypeError(f"{where} is {given.name}; it must be {wanted}")
        elif declared.kind is Kind.NUMBER and given not in (*FLOATS, *INDICES):
            raise TypeError(f"{where} is {given.name}; it must be {Kind.NUMBER.value}")
        elif given not in FLOATS and declared.kind not in (Kind.ANY, Kind.NUMBER):
            raise TypeError(f"{where} is {given.name}; it must be float32 or bfloat16")
        elif declared.kind in COMMON:
            if dtype is not None and given != dtype:
                raise TypeError(
                    f"{where} is {given.name}, the other operands are {dtype.name}; "
                    "all must have one dtype, which to(dtype) gives"
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
                # An operator that drops the axis it sums over keeps those before it.
                dropped = self.reduces_last_axis and len(shape) < operand.ndim
                placed = axis if dropped else len(shape) - operand.ndim + axis
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

    def variant(self, shapes: Sequence[Shape | None]) -> str:
        """Names the function body for these inputs among all of this operator's bodies."""
        given = [
            declared.name
            for declared, shape in zip(self.declared(len(shapes)), shapes, strict=False)
            if declared.optional and shape is not None
        ]
        built = [f"{name}_{self.attributes().get(name)}" for name in self.built_in]
        extra = self.shape_variant(shapes)
        return ".".join([*given, *built, *([extra] if extra else [])])

    @classmethod
    def step(cls, *operands: Any, **named: Any) -> Handle:
        """Record a step in the graph being traced; returns the first output's handle.

        Args:
            operands: the inputs in order; handles, states, weights, arrays, per-call values, or
                numbers, which take the other operands' dtype. Later ones may be named.
            named: further inputs, the attributes, and the tunables.

        Raises:
            As ``steps``.
        """
        return cls.steps(*operands, **named)[0]

    @classmethod
    def steps(cls, *operands: Any, **named: Any) -> tuple[Handle, ...]:
        """Record a step, as ``step``; returns the handles of all outputs.

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
        inputs = cls.declared(len(given))
        common = [given[d.name] for d in inputs if d.name in given and d.kind not in FIXED]
        like = number_dtype(common)
        if like is None and any(isinstance(operand, Value) for operand in common):
            like = INT32
        lifted: list[Operand] = []
        for declared in inputs:
            operand = given.get(declared.name)
            if operand is None:
                lifted.append(None)
            elif declared.kind is Kind.NUMBER and isinstance(operand, Value):
                lifted.append(operand)  # an int32 of the call
            elif declared.kind is Kind.SCALAR:
                lifted.append(_scalar(f"{cls.name}.{declared.name}", operand))
            else:
                wanted = {Kind.INDEX: INT32, Kind.FLOAT32: FLOAT32}.get(declared.kind, like)
                lifted.append(trace.lift(operand, like=wanted))
        outputs: tuple[Handle, ...] = trace.record(
            cls(**cls._converted_fields(named)), lifted, tunables
        )
        return outputs

    @classmethod
    def _bind(cls, operands: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Operands by input name; takes those given by name out of ``named``."""
        inputs = cls.declared(max(len(operands), len(cls.inputs)))
        if len(operands) > len(inputs):
            raise TypeError(f"{cls.name} takes {len(inputs)} operands, not {len(operands)}")
        names = [declared.name for declared in inputs]
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


def widen(array: Array) -> Array:
    """An operand in float32, as every step computes."""
    return array.astype(np.float32)


def narrow_like(result: Array, like: Array) -> Array:
    """A result rounded once to an operand's dtype, by way of float32."""
    return result.astype(np.float32).astype(like.dtype)
