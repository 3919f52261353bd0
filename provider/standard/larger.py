"""Standard operators whose result has more elements than what they read: repeated, padded, made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnx_iron.dtypes import DTYPES, FLOAT32, INDICES, Array, Spec
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.fold import fold
from onnx_iron.provider.standard.rule import broadcast, rule
from onnx_iron.provider.symbols import Symbol, surely_equal

# So many integers are worth knowing, for what computes shapes of them.
_FEW = 64


@rule("Expand", since=8, newest=13)
def expand(op: Operation) -> None:
    spec, wanted = op.spec(0), op.integers(1)
    if wanted is None:
        op.refuse("input 1, the shape, is missing")
    op.require(all(dim >= 0 for dim in wanted), f"it expands to {wanted}")
    shape = broadcast(op, spec.shape, tuple(wanted))
    if surely_equal(shape, spec.shape):
        op.view(op.input(0), shape)
        return
    op.step(standard("Expand", moves=True), [op.input(0)], [op.output(Spec(shape, spec.dtype))])


@rule("Tile", since=6, newest=13)
def tile(op: Operation) -> None:
    spec, repeats = op.spec(0), op.integers(1)
    if repeats is None or len(repeats) != len(spec.shape):
        op.refuse(f"it repeats {spec} by {repeats}")
    op.require(all(count >= 0 for count in repeats), f"it repeats by {repeats}")
    pairs = list(zip(repeats, spec.shape, strict=True))
    apart = tuple(dim for _, size in pairs for dim in (1, size))
    whole = tuple(dim for count, size in pairs for dim in (count, size))
    made = op.temporary(Spec(whole, spec.dtype))
    op.step(standard("Expand", moves=True), [op.viewed(op.input(0), apart)], [made])
    op.view(made, tuple(count * size for count, size in pairs))


@rule("Pad", since=2, newest=25)
def pad(op: Operation) -> None:
    """Before opset 11 pads and value are attributes; axes came with opset 18."""
    spec, pads = op.spec(0), op.integers(1, "pads")
    rank = len(spec.shape)
    axes = op.axes(3) if op.has(3) else None
    places = range(rank) if axes is None else [op.from_front(axis, rank) for axis in axes]
    if pads is None or len(pads) != 2 * len(places):
        op.refuse(f"it pads {spec} by {pads} along axes {list(places)}")
    op.require(len(set(places)) == len(places), f"axes {axes} repeat")
    begins, ends = [0] * rank, [0] * rank
    for place, before, after in zip(places, pads[: len(places)], pads[len(places) :], strict=True):
        begins[place], ends[place] = before, after
    shape = tuple(b + dim + e for b, dim, e in zip(begins, spec.shape, ends, strict=True))
    op.require(all(dim >= 0 for dim in shape), f"it pads {spec} by {pads}")
    inputs = [op.input(0)]
    if op.has(2):
        inputs.append(op.input(2))
    elif op.attribute("value", 0.0) != 0.0:
        inputs.append(op.literal(np.array(op.attribute("value"), spec.dtype)))
    operator = standard(
        "Pad", moves=True, mode=op.attribute("mode", "constant"), begins=begins, ends=ends
    )
    op.step(operator, inputs, [op.output(Spec(shape, spec.dtype))])


@rule("ConstantOfShape", since=9, newest=25)
def constant_of_shape(op: Operation) -> None:
    value, shape = _value(op), op.integers(0)
    if shape is None or any(dim < 0 for dim in shape):
        op.refuse(f"its shape is {shape}")
    few = not any(isinstance(dim, Symbol) for dim in shape) and 0 < math.prod(shape) <= _FEW
    if value.dtype in INDICES and len(shape) == 1 and few and not op.is_guess(0):
        fold(op, [int(value[()])] * shape[0], value.dtype)
        return
    output = op.output(Spec(tuple(shape), value.dtype))
    op.step(standard("Expand", moves=True), [op.literal(value)], [output])


def _value(op: Operation) -> Array:
    """What all elements are: a float32 zero unless an attribute says it."""
    given = op.attribute("value")
    if "value" not in op.node.attributes:
        return np.zeros((), FLOAT32)
    dtype = DTYPES.get(given["dtype"]) if isinstance(given, dict) else None
    if dtype is None or not isinstance(given, dict):
        op.refuse("its value has a dtype that no kernel has, or is no single element")
    return np.array(given["value"], dtype)


@rule("Range", since=11, newest=27)
def range_(op: Operation) -> None:
    dtype = op.spec(0).dtype
    op.require(dtype in INDICES, f"it counts in {dtype.name}, integers are known")
    start, limit, delta = (_number(op, index) for index in range(3))
    op.require(not isinstance(delta, Symbol) and delta != 0, f"it counts by {delta}")
    # Never by -1, which a program for other sizes does not divide by.
    way = start - limit if delta > 0 else limit - start
    count = -(way // abs(delta))
    count = count if count > 0 else 0
    guess = any(op.is_guess(index) for index in range(3))
    symbols = any(isinstance(number, Symbol) for number in (start, count))
    if not guess and not symbols and count <= _FEW:
        fold(op, [start + i * delta for i in range(count)], dtype)
        return
    op.step(standard("Range"), [op.input(0), op.input(2)], [op.output(Spec((count,), dtype))])


def _number(op: Operation, index: int) -> Any:
    numbers = op.integers(index)
    if numbers is None or len(numbers) != 1:
        op.refuse(f"input {index} is no number")
    return numbers[0]


@rule("Trilu", since=14, newest=14)
def trilu(op: Operation) -> None:
    spec = op.spec(0)
    diagonal = _number(op, 1) if op.has(1) else 0
    operator = standard("Trilu", moves=True, upper=int(op.attribute("upper", 1)), diagonal=diagonal)
    op.step(operator, [op.input(0)], [op.output(spec)])
