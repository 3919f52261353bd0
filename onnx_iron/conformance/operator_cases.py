"""Cases of single operators, from their declarations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import MethodType
from typing import Any

import numpy as np

from onnx_iron.conformance.case import Call, Case
from onnx_iron.conformance.values import FILLS, filled
from onnx_iron.dtypes import FLOATS, INT32, Array, DType, Shape
from onnx_iron.graph import Graph, Trace
from onnx_iron.operators import OPERATORS, Kind, Op
from onnx_iron.operators import Case as Declared

# One row, an odd number, a chunk as kernels cut rows (32), and one more.
ROWS = (1, 7, 32, 33)


def operator_cases() -> Iterator[Case]:
    """Every operator's declared cases and their variations, in each dtype."""
    for name, op in sorted(OPERATORS.items()):
        for declared in variations(op):
            for dtype in FLOATS:
                yield Case(
                    name=f"{name}: {declared}, {dtype.name}",
                    subject=name,
                    dtype=dtype,
                    make=_tracer(op, declared, dtype),
                    calls=tuple(_calls(op, declared, dtype)),
                    tolerance=op.from_attributes(_plain(declared.attributes)).tolerance(dtype),
                )


def variations(op: type[Op]) -> Iterator[Declared]:
    """The declared cases, and each with other numbers of rows where the operator takes them."""
    seen = set()
    for declared in op.cases:
        for made in (declared, *_with_rows(op, declared)):
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
            made = Declared(shapes, declared.attributes, declared.values)
            if _takes(op, made):
                yield made
                break


def _takes(op: type[Op], declared: Declared) -> bool:
    operator = op.from_attributes(_plain(declared.attributes))
    specs = [
        (declared.shapes[d.name], INT32 if d.kind is Kind.INDEX else FLOATS[0])
        if d.name in declared.shapes
        else ((), INT32)
        if d.name in declared.values
        else None
        for d in op.inputs
    ]
    try:
        operator.infer(specs)
        operator.check_call(
            declared.shapes, {name: [value] for name, value in declared.values.items()}
        )
    except ValueError:
        return False
    return True


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: int(v) if isinstance(v, bool) else v for name, v in attributes.items()}


class OneStep(Graph):
    """A graph whose body is one step of an operator."""

    def __init__(self, op: type[Op], declared: Declared) -> None:
        self._op, self._declared = op, declared
        tensors = [d.name for d in op.inputs if d.name in declared.shapes]
        scalars = [d.name for d in op.inputs if d.name in declared.values]

        def body(self: OneStep, *given: Any, **values: Any) -> Any:
            operands = dict(zip(tensors, given, strict=True))
            return self._op.step(**operands, **values, **self._declared.attributes)

        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kinds[0]) for name in ("self", *tensors)]
            + [inspect.Parameter(name, kinds[1]) for name in scalars]
        )
        self.body = MethodType(body, self)  # type: ignore[method-assign]


def _tracer(op: type[Op], declared: Declared, dtype: DType) -> Any:
    def trace() -> Trace:
        kinds = {d.name: INT32 if d.kind is Kind.INDEX else dtype for d in op.inputs}
        specs = {name: (shape, kinds[name]) for name, shape in declared.shapes.items()}
        return OneStep(op, declared).trace(**specs)

    return trace


def _calls(op: type[Op], declared: Declared, dtype: DType) -> Iterator[Call]:
    moves_integers = all(d.kind in (Kind.INDEX, Kind.SCALAR) for d in op.inputs)
    for kind in ("normal",) if moves_integers else FILLS:
        yield Call(kind, dict(_operands(op, declared, dtype, kind)), _in_order(op, declared))
    for values in _other_values(op, declared):
        yield Call("normal", dict(_operands(op, declared, dtype, "normal")), values)


def _in_order(op: type[Op], declared: Declared) -> dict[str, int]:
    return {d.name: declared.values[d.name] for d in op.inputs if d.name in declared.values}


def _other_values(op: type[Op], declared: Declared) -> Iterator[dict[str, int]]:
    """Every other value that a per-call integer may have, one integer at a time."""
    for name in declared.values:
        for value in range(max(declared.shapes[op.inputs[0].name], default=0) + 1):
            values = {**_in_order(op, declared), name: value}
            made = Declared(declared.shapes, declared.attributes, values)
            if values != declared.values and _takes(op, made):
                yield values


def _operands(
    op: type[Op], declared: Declared, dtype: DType, kind: str
) -> Iterator[tuple[str, Array]]:
    for seed, made in enumerate(op.inputs):
        shape: Shape | None = declared.shapes.get(made.name)
        if shape is None:
            continue
        if made.kind is Kind.INDEX:
            entries = next(iter(declared.shapes.values()))[0]
            ids = np.random.default_rng(seed).integers(0, entries, shape, INT32)
            yield made.name, ids
        else:
            yield made.name, filled(kind, seed, shape, dtype)
