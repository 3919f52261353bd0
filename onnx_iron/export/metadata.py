"""What a model's metadata says about its per-call values: written by an export, read by a session.

Three entries, each JSON. An expression over per-call values is ``[constant, term, ...]``, a term
``[factor, name]``, ``[factor, expression, divisor]`` for a quotient rounded down, or
``[factor, expression, "min" or "max", expression]``.

- ``onnx_iron.values``: by value, the axes of inputs that are exactly so long in a call.
- ``onnx_iron.bounds``: by input or output, ``[axis, expression]`` for each axis of which only so
  many entries are valid, 1 where the axis of the rows has one; an output that is not there has no
  padding.
- ``onnx_iron.limits``: the ranges that the model's operators allow, each once.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.leading import bounds_of
from onnx_iron.graph.region import Region
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.graph.value import MOST_QUOTIENTS, Extremum, FloorDiv, Symbol, Value
from onnx_iron.operators.base import Kind

# Who calls a model, where it is not a session of ours.
DRIVER = "onnx_iron.driver"
VALUES, BOUNDS, LIMITS = "onnx_iron.values", "onnx_iron.bounds", "onnx_iron.limits"
_LEAST = -(2**31)


@dataclass(frozen=True)
class CallLimit:
    """A range for a per-call expression, or for the elements of an input of integers.

    Attributes:
        value: the expression; None where ``input`` names an input instead.
        input: an input, all of whose elements must be in the range.
        low: the least number allowed.
        high: the greatest.
        of: the tensor whose size sets the range: "state 'keys'".
        size: that size.
    """

    value: Value | None
    input: str | None
    low: int
    high: Value
    of: str
    size: int

    def expected(self, values: Mapping[str, int]) -> str:
        """The range in words, for one call's values."""
        others = {name: values[name] for name in self.high.names()}
        because = ", ".join(f"{name} is {number}" for name, number in others.items())
        text = f"expected {self.low}..{self.high.evaluate(values)}"
        return f"{text} ({because})" if because else text


# -- what an export writes --------------------------------------------------------------------


def describe(trace: Trace) -> dict[str, str]:
    """The entries of a traced model."""
    return {
        VALUES: json.dumps(_values(trace)),
        BOUNDS: json.dumps(_bounds(trace)),
        LIMITS: json.dumps([_encode_limit(limit) for limit in call_limits(trace)]),
    }


def used_values(trace: Trace) -> list[str]:
    """The per-call values that the steps depend on, in the body's order."""
    used: set[str] = set()
    for step in trace.steps:
        for value in step.values():
            used.update(value.names())
        for handle in (*step.tensors(), *step.outputs):
            for part in handle.lineage():
                used.update(name for rows in part.valid.values() for name in rows.names())
                for region in part.index.regions if part.index else ():
                    if isinstance(region.start, Value):
                        used.update(region.start.names())
    return [name for name in trace.value_names if name in used]


def _values(trace: Trace) -> dict[str, Any]:
    described: dict[str, Any] = {name: {"bounds": []} for name in used_values(trace)}
    for name, axis, rows in trace.input_bounds():
        bound = {"input": name, "axis": axis}
        value = next(iter(rows.names()), "")
        if rows == Value.named(value) and bound not in described[value]["bounds"]:
            described[value]["bounds"].append(bound)
    return described


def _bounds(trace: Trace) -> dict[str, Any]:
    found: dict[str, dict[int, Value]] = {}
    for name, single in trace.single.items():
        found[name] = {axis: Value({}, 1) for axis in single}
    for name, axis, rows in trace.input_bounds():
        known = found.setdefault(name, {}).setdefault(axis, rows)
        # Where an input is bounded in two ways, the value itself is the one that cuts it.
        if known != rows and rows == Value.named(next(iter(rows.names()), "")):
            found[name][axis] = rows
    for name, handle in trace.outputs.items():
        if handle.valid:
            found[name] = handle.valid
    return {
        name: [[axis, _encode(rows)] for axis, rows in sorted(axes.items())]
        for name, axes in found.items()
    }


def call_limits(trace: Trace) -> list[CallLimit]:
    """The ranges that a call's integers must be in, as the reference run checks them."""
    found: dict[Any, CallLimit] = {}
    for step in trace.steps:
        for limit in _limits_of(step):
            simple = _simplified(limit)
            fixed = simple.high.fixed()
            number = None if simple.value is None else simple.value.fixed()
            if number is not None and fixed is not None and simple.low <= number <= fixed:
                continue
            found.setdefault((simple.value, simple.input, simple.low, simple.high), simple)
    return list(found.values())


def _limits_of(step: Step) -> Iterator[CallLimit]:
    for handle in (*step.tensors(), *step.outputs):
        for part, axis, rows in bounds_of(handle):
            size = part.shape[axis]
            yield CallLimit(rows, None, 0, Value({}, size), _named(handle), size)
    for handle in step.tensors():
        yield from _places(handle, {})
    destination = step.outputs[0]
    if destination.base.role is Role.STATE:
        yield from _places(destination, {**destination.valid, **next(step.tensors()).valid})
    inputs = step.op.declared(len(step.inputs))
    given = {
        declared.name: operand
        for declared, operand in zip(inputs, step.inputs, strict=True)
        if operand is not None
    }
    kinds = {declared.name: declared.kind for declared in inputs}
    shapes = {name: x.shape if isinstance(x, Handle) else () for name, x in given.items()}
    integers = {name: [x] for name, x in given.items() if kinds[name] in (Kind.SCALAR, Kind.INDEX)}
    for limit in step.op.limits(shapes, integers):
        sized = given[limit.of]
        assert isinstance(sized, Handle)
        high = limit.high if isinstance(limit.high, Value) else Value({}, limit.high)
        value, of = limit.value, _named(sized)
        if not isinstance(value, Handle):
            value = value if isinstance(value, Value) else Value({}, value)
            yield CallLimit(value, None, limit.low, high, of, limit.size)
        elif value.whole and value.base.role is Role.INPUT:
            yield CallLimit(None, value.base.name, limit.low, high, of, limit.size)


def _places(handle: Handle, valid: Mapping[int, Value]) -> Iterator[CallLimit]:
    """The per-call places that a handle takes its part from, or writes it to."""
    valid = {**valid, **handle.valid}
    parent = handle.parent
    if parent is None:
        return
    if handle.permutation is not None:
        turned = {handle.permutation[axis]: rows for axis, rows in valid.items()}
        yield from _places(parent, turned)
    elif handle.index is None or not handle.index.regions:
        yield from _places(parent, valid if handle.shape == parent.shape else {})
    else:
        for region in handle.index.regions:
            yield from _place(handle, region, valid)
        yield from _places(parent, {})


def _place(handle: Handle, region: Region, valid: Mapping[int, Value]) -> Iterator[CallLimit]:
    if isinstance(region.start, Value):
        size = region.view_shape[region.axis]
        bound = None if region.bound_axis is None else valid.get(region.bound_axis)
        needed = Value({}, region.length) if bound is None else bound
        yield CallLimit(region.start, None, 0, size - needed, _named(handle), size)


def _named(handle: Handle) -> str:
    """What a message calls the tensor that a handle is a part of."""
    role = "result" if handle.base.role is Role.INTERMEDIATE else handle.base.role.value
    return f"{role} {handle.base.name!r}"


def _simplified(limit: CallLimit) -> CallLimit:
    """The same range for the terms alone, for a single value by itself: so equals are found."""
    value, low, high = limit.value, limit.low, limit.high
    if value is None:
        return limit
    if value.fixed() is not None and high.fixed() is None:
        # What varies stands on the left: a <= b - rows is rows <= b - a.
        value, low, high = -high + high.constant, _LEAST, Value({}, high.constant) - value
    value, low, high = value - value.constant, low - value.constant, high - value.constant
    most = high.fixed()
    if len(value.terms) == 1 and most is not None:
        (symbol, factor), *_ = value.terms
        if factor < 0:
            low, most, factor = -most, -low, -factor
        value, low, high = Value({symbol: 1}), -(-low // factor), Value({}, most // factor)
    return CallLimit(value, None, low, high, limit.of, limit.size)


def _encode(value: Value) -> list[Any]:
    return [value.constant, *([factor, *_encode_symbol(s)] for s, factor in value.terms)]


def _encode_symbol(symbol: Symbol) -> list[Any]:
    if isinstance(symbol, FloorDiv):
        return [_encode(symbol.numerator), symbol.divisor]
    if isinstance(symbol, Extremum):
        return [_encode(symbol.left), symbol.name, _encode(symbol.right)]
    return [symbol]


def _encode_limit(limit: CallLimit) -> dict[str, Any]:
    what = {"input": limit.input} if limit.value is None else {"value": _encode(limit.value)}
    high = _encode(limit.high)
    return {**what, "low": limit.low, "high": high, "of": limit.of, "size": limit.size}


# -- what a session reads ---------------------------------------------------------------------


def read_json(text: str, key: str, where: str) -> Any:
    """An entry's contents.

    Raises:
        ValueError: the text is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise unreadable(where, key, "lists or objects are nested too deep") from None
    except ValueError as error:
        raise unreadable(where, key, f"it is no JSON: {error}") from None


def unreadable(where: str, key: str, why: str) -> ValueError:
    """The error for an entry that is not what an export writes."""
    return ValueError(f"{where}: the metadata {key} can't be read ({why}); export the model again")


def read_values(text: str, where: str) -> dict[str, list[tuple[str, int]]]:
    """The per-call values, each with the inputs' axes that it bounds.

    Raises:
        ValueError: the entry is not what an export writes.
    """
    read = _Reader(VALUES, where)
    return {
        name: [
            (read.text(bound, "input"), read.axis(read.member(bound, "axis")))
            for bound in read.entries(read.member(item, "bounds"))
        ]
        for name, item in read.members(read_json(text, VALUES, where)).items()
    }


def read_bounds(text: str, where: str) -> dict[str, dict[int, Value]]:
    """The bounded axes of inputs and outputs.

    Raises:
        ValueError: the entry is not what an export writes.
    """
    read = _Reader(BOUNDS, where)
    return {
        name: {
            read.axis(axis): read.value(rows) for axis, rows in map(read.pair, read.entries(axes))
        }
        for name, axes in read.members(read_json(text, BOUNDS, where)).items()
    }


def read_limits(text: str, where: str) -> list[CallLimit]:
    """The ranges of per-call values.

    Raises:
        ValueError: the entry is not what an export writes.
    """
    read = _Reader(LIMITS, where)
    return [
        CallLimit(
            value=None if "input" in read.members(item) else read.value(read.member(item, "value")),
            input=read.text(item, "input") if "input" in item else None,
            low=read.integer(read.member(item, "low")),
            high=read.value(read.member(item, "high")),
            of=read.text(item, "of"),
            size=read.integer(read.member(item, "size")),
        )
        for item in read.entries(read_json(text, LIMITS, where))
    ]


class _Reader:
    """Takes an entry's contents apart; another type than expected is an error that names it."""

    def __init__(self, key: str, where: str) -> None:
        self._key = key
        self._where = where

    def _refuse(self, found: Any, expected: str) -> ValueError:
        return unreadable(self._where, self._key, f"{reprlib.repr(found)}, expected {expected}")

    def members(self, item: Any) -> Mapping[str, Any]:
        if not isinstance(item, dict):
            raise self._refuse(item, "an object")
        return item

    def entries(self, item: Any) -> list[Any]:
        if not isinstance(item, list):
            raise self._refuse(item, "a list")
        return item

    def pair(self, item: Any) -> list[Any]:
        if len(self.entries(item)) != 2:
            raise self._refuse(item, "a pair")
        return self.entries(item)

    def member(self, item: Any, name: str) -> Any:
        if name not in self.members(item):
            raise self._refuse(item, f"a member {name!r}")
        return item[name]

    def text(self, item: Any, name: str) -> str:
        text = self.member(item, name)
        if not isinstance(text, str):
            raise self._refuse(text, f"text for {name!r}")
        return text

    def integer(self, item: Any) -> int:
        if not isinstance(item, int) or isinstance(item, bool) or abs(item) >= 1 << 63:
            raise self._refuse(item, "an integer of 64 bits")
        return item

    def axis(self, item: Any) -> int:
        if self.integer(item) < 0:
            raise self._refuse(item, "an axis, counted from 0")
        return self.integer(item)

    def value(self, item: Any, depth: int = 0) -> Value:
        if depth > MOST_QUOTIENTS:
            raise self._refuse(item, f"quotients of quotients {MOST_QUOTIENTS} deep at the most")
        constant, *terms = self.entries(item) or [None]
        found: dict[Symbol, int] = {}
        for term in terms:
            factor, symbol, *rest = (
                self.entries(term) if len(self.entries(term)) > 1 else [None] * 2
            )
            if isinstance(symbol, str) and not rest:
                found[symbol] = self.integer(factor)
                continue
            if len(rest) == 2 and rest[0] in ("min", "max"):
                both = self.value(symbol, depth + 1), self.value(rest[1], depth + 1)
                found[Extremum(rest[0], *both)] = self.integer(factor)
                continue
            if len(rest) != 1 or self.integer(rest[0]) < 1:
                raise self._refuse(
                    term,
                    "[factor, name], [factor, expression, divisor] or [factor, expression, 'min' "
                    "or 'max', expression]",
                )
            quotient = FloorDiv(self.value(symbol, depth + 1), self.integer(rest[0]))
            found[quotient] = self.integer(factor)
        return Value(found, self.integer(constant))
