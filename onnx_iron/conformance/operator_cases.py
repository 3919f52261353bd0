"""Cases of single operators, from their declarations."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from types import MethodType
from typing import Any

import numpy as np

from onnx_iron.conformance.case import Call, Case
from onnx_iron.conformance.values import FILLS, filled
from onnx_iron.dtypes import BOOL, FLOAT32, FLOATS, INT32, Array, DType, Spec
from onnx_iron.graph import Graph, Trace
from onnx_iron.operators import OPERATORS, Kind, Op
from onnx_iron.operators import Case as Declared

# One, an odd number, a chunk as kernels cut rows (32), and one more. A graph's inputs have rows;
# that a call has none of them is a value of ``rows``.
ROWS = (1, 7, 32, 33)
# The dtypes of inputs that have one whatever is computed.
_FIXED: dict[Kind, DType] = {Kind.INDEX: INT32, Kind.BOOL: BOOL, Kind.FLOAT32: FLOAT32}
# Far below and above what models have, by the attribute's name. An epsilon of 0 would leave what
# float32's range makes of the squares of small numbers.
EXTREMES: dict[str, tuple[float, ...]] = {"epsilon": (1e-12, 1.0), "scale": (-2.0,)}


def operator_cases() -> Iterator[Case]:
    """Every operator's declared cases and their variations, in each dtype."""
    for name, op in sorted(OPERATORS.items()):
        for declared in variations(op):
            for dtype in FLOATS:
                yield Case(
                    name=f"{name}: {declared}, {dtype.name}",
                    subject=name,
                    dtype=dtype,
                    make=functools.partial(_traced, name, declared, dtype),
                    calls=tuple(_calls(op, declared, dtype)),
                    tolerance=op.tolerance,
                )


def variations(op: type[Op]) -> Iterator[Declared]:
    """The declared cases, and each with other rows, without what is optional, at extremes."""
    seen = set()
    for declared in op.cases:
        for made in (
            declared,
            *_with_rows(op, declared),
            *_without_optional(op, declared),
            *_at_extremes(op, declared),
        ):
            if str(made) not in seen:
                seen.add(str(made))
                yield made


def _with_rows(op: type[Op], declared: Declared) -> Iterator[Declared]:
    first = op.inputs[0].name
    shape = declared.shapes.get(first, ())
    if len(shape) < 2:
        return
    for rows in ROWS:
        alone = {**declared.shapes, first: (rows, *shape[1:])}
        together = {
            name: (rows, *dims[1:]) if dims[:1] == shape[:1] else dims
            for name, dims in declared.shapes.items()
        }
        for shapes in (alone, together):
            made = dataclasses.replace(declared, shapes=shapes)
            if _takes(op, made):
                yield made
                break


def _without_optional(op: type[Op], declared: Declared) -> Iterator[Declared]:
    for dropped in (d.name for d in op.inputs if d.optional):
        made = Declared(
            {name: shape for name, shape in declared.shapes.items() if name != dropped},
            declared.attributes,
            {name: value for name, value in declared.values.items() if name != dropped},
        )
        if made != declared and _takes(op, made):
            yield made


def _at_extremes(op: type[Op], declared: Declared) -> Iterator[Declared]:
    for name in EXTREMES.keys() & op.attribute_fields().keys():
        for value in EXTREMES[name]:
            yield dataclasses.replace(declared, attributes={**declared.attributes, name: value})


def _takes(op: type[Op], declared: Declared) -> bool:
    specs = [
        Spec(declared.shapes[d.name], _FIXED.get(d.kind, FLOATS[0]))
        if d.name in declared.shapes
        else Spec((), INT32)
        if d.name in declared.values
        else None
        for d in op.inputs
    ]
    given = {name: [value] for name, value in declared.values.items()}
    indices = {d.name: [0] for d in op.inputs if d.kind is Kind.INDEX}
    operator = op(**declared.attributes)
    try:
        operator.infer(specs)
        operator.check_call(declared.shapes, {**indices, **given})
    except ValueError:
        return False
    return True


class OneStep(Graph):
    """A graph whose body is one step of an operator, with all that it gives as outputs."""

    def __init__(self, op: type[Op], declared: Declared) -> None:
        tensors = [d.name for d in op.inputs if d.name in declared.shapes]
        scalars = [d.name for d in op.inputs if d.name in declared.values]

        def body(self: OneStep, *given: Any, **values: Any) -> Any:
            operands = dict(zip(tensors, given, strict=True))
            made = op.steps(**operands, **values, **declared.attributes)
            return dict(zip(op.outputs, made, strict=True))

        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kinds[0]) for name in ("self", *tensors)]
            + [inspect.Parameter(name, kinds[1]) for name in scalars]
        )
        self.body = MethodType(body, self)  # type: ignore[method-assign]


def _traced(name: str, declared: Declared, dtype: DType) -> Trace:
    op = OPERATORS[name]
    kinds = {d.name: _FIXED.get(d.kind, dtype) for d in op.inputs}
    specs = {name: (shape, kinds[name]) for name, shape in declared.shapes.items()}
    return OneStep(op, declared).trace(**specs)


def _calls(op: type[Op], declared: Declared, dtype: DType) -> Iterator[Call]:
    values = {d.name: declared.values[d.name] for d in op.inputs if d.name in declared.values}
    for kind in FILLS:
        yield Call(kind, dict(_operands(op, declared, dtype, kind)), values)
    for others in _other_values(op, declared):
        yield Call("normal", dict(_operands(op, declared, dtype, "normal")), {**values, **others})


def _other_values(op: type[Op], declared: Declared) -> Iterator[dict[str, int]]:
    """Every other value that a per-call integer may have, one integer at a time."""
    for name in declared.values:
        for value in range(max(max(shape, default=0) for shape in declared.shapes.values()) + 1):
            made = dataclasses.replace(declared, values={**declared.values, name: value})
            if value != declared.values[name] and _takes(op, made):
                yield {name: value}


def _operands(
    op: type[Op], declared: Declared, dtype: DType, kind: str
) -> Iterator[tuple[str, Array]]:
    for seed, made in enumerate(op.inputs):
        shape = declared.shapes.get(made.name)
        if shape is None:
            continue
        if made.kind is Kind.INDEX:
            entries = next(iter(declared.shapes.values()))[0]
            yield made.name, np.random.default_rng(seed).integers(0, entries, shape, INT32)
        elif made.kind is Kind.BOOL:
            yield made.name, filled(kind, seed, shape, dtype) > 0
        else:
            yield made.name, filled(kind, seed, shape, _FIXED.get(made.kind, dtype))
