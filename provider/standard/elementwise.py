"""Standard operators that compute element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnx_iron.dtypes import BOOL, DTYPES, FLOAT32, FLOATS, INDICES, Spec
from onnx_iron.operators.arithmetic import Add, Div, Mul, Sub
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.silu import SiLU
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.standard.fold import fold_by
from onnx_iron.provider.standard.rule import broadcast, rounded, rule, widened


def _quotient(a: int, b: int) -> int:
    """Towards zero, as the kernel's; of sizes, both are positive."""
    if a >= 0 and b > 0:
        return a // b
    return int(abs(int(a)) // abs(int(b))) * (1 if (a < 0) == (b < 0) else -1)


# What computes with sizes that are known.
_ON_INTEGERS: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _quotient,
}
_RELATIONS: Mapping[str, Callable[..., Any]] = {
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
}
ARITHMETIC = {op.__name__: op for op in (Add, Sub, Mul, Div)}


@rule("Add", "Sub", "Mul", "Div", since=7, newest=14)
@rule("Pow", since=7, newest=15)
@rule("Mod", since=10, newest=28)
def binary(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    if a.dtype != b.dtype:
        op.refuse(f"operands are {a.dtype.name} and {b.dtype.name}")
    kind = op.node.op_type
    if fold_by(op, _ON_INTEGERS.get(kind), a.dtype):
        return
    if kind == "Mod":
        step: Operator = standard(kind, elementwise=True, fmod=op.attribute("fmod", 0))
    else:
        step = ARITHMETIC[kind]() if kind in ARITHMETIC else standard(kind, elementwise=True)
    output = op.output(Spec(broadcast(op, a.shape, b.shape), a.dtype))
    op.step(step, [op.input(0), op.input(1)], [output])


@rule("And", "Or", "Xor", since=7, newest=7)
def logic(op: Operation) -> None:
    output = op.output(Spec(broadcast(op, op.spec(0).shape, op.spec(1).shape), BOOL))
    step = standard(op.node.op_type, elementwise=True)
    op.step(step, [op.input(0), op.input(1)], [output])


@rule("Sum", since=8, newest=13)
def total(op: Operation) -> None:
    """In float32, and rounded once."""
    specs = [op.spec(index) for index in range(op.input_count)]
    dtype = specs[0].dtype
    op.require(dtype in FLOATS, f"its input is {specs[0]}")
    op.require(all(spec.dtype == dtype for spec in specs), "operands are of several dtypes")
    result, shape = widened(op, op.input(0), specs[0]), specs[0].shape
    for index, spec in enumerate(specs[1:], 1):
        shape = broadcast(op, shape, spec.shape)
        added = op.temporary(Spec(shape, FLOAT32))
        op.step(Add(), [result, widened(op, op.input(index), spec)], [added])
        result = added
    rounded(op, result, Spec(shape, dtype))


@rule("Max", "Min", since=8, newest=13)
def extremum(op: Operation) -> None:
    first, spec = op.input(0), op.spec(0)
    if op.input_count == 1:
        op.view(first, spec.shape)
    for index in range(1, op.input_count):
        other = op.spec(index)
        op.require(spec.dtype == other.dtype, "operands are of several dtypes")
        spec = Spec(broadcast(op, spec.shape, other.shape), spec.dtype)
        last = index == op.input_count - 1
        output = op.output(spec) if last else op.temporary(spec)
        step = standard(op.node.op_type, elementwise=True)
        op.step(step, [first, op.input(index)], [output])
        first = output


@rule("Clip", since=6, newest=13)
def clip(op: Operation) -> None:
    """Before opset 11 the bounds are attributes."""
    spec, x = op.spec(0), op.input(0)
    bounds = []
    for index, name, kernel in ((1, "min", "Max"), (2, "max", "Min")):
        if op.has(index):
            bound = op.spec(index)
            one = bound.elements == 1 and bound.dtype == spec.dtype
            op.require(one, f"input {index} is {bound} for {spec}")
            bounds.append((kernel, op.viewed(op.input(index), ())))
        elif op.attribute(name) is not None:
            bounds.append((kernel, op.literal(np.array(op.attribute(name), spec.dtype))))
    if not bounds:
        op.view(x, spec.shape)
    for place, (kernel, bound_name) in enumerate(bounds):
        last = place == len(bounds) - 1
        result = op.output(spec) if last else op.temporary(spec)
        op.step(standard(kernel, elementwise=True), [x, bound_name], [result])
        x = result


@rule("Sigmoid", "Tanh", "Sqrt", "Exp", "Neg", "Reciprocal", "Abs", since=6, newest=13)
@rule("Log", "Floor", "Ceil", since=6, newest=13)
@rule("Round", since=11, newest=22)
@rule("Sign", since=9, newest=13)
@rule("Sin", "Cos", since=7, newest=22)
@rule("Not", since=1, newest=1)
@rule("Softplus", since=1, newest=22)
@rule("Relu", since=6, newest=14)
@rule("Erf", since=9, newest=13)
def unary(op: Operation) -> None:
    step = standard(op.node.op_type, elementwise=True)
    op.step(step, [op.input(0)], [op.output(op.spec(0))])


@rule("Equal", since=7, newest=19)
@rule("Less", "Greater", since=9, newest=13)
@rule("LessOrEqual", "GreaterOrEqual", since=12, newest=16)
def compare(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    op.require(a.dtype == b.dtype, f"operands are {a.dtype.name} and {b.dtype.name}")
    if fold_by(op, _RELATIONS[op.node.op_type], BOOL):
        return
    output = op.output(Spec(broadcast(op, a.shape, b.shape), BOOL))
    op.step(standard(op.node.op_type), [op.input(0), op.input(1)], [output])


@rule("IsNaN", since=9, newest=20)
def is_nan(op: Operation) -> None:
    op.step(standard("IsNaN"), [op.input(0)], [op.output(Spec(op.spec(0).shape, BOOL))])


@rule("Swish", since=24, newest=24)
def swish(op: Operation) -> None:
    alpha = op.attribute("alpha", 1.0)
    op.require(alpha == 1.0, f"alpha is {alpha}, the kernel has 1")
    op.step(SiLU(), [op.input(0)], [op.output(op.spec(0))])


@rule("Gelu", since=20, newest=20)
def gelu(op: Operation) -> None:
    approximate = op.attribute("approximate", "none")
    op.step(GELU(approximate), [op.input(0)], [op.output(op.spec(0))])


@rule("Where", since=9, newest=16)
def where(op: Operation) -> None:
    condition, a, b = (op.spec(index) for index in range(3))
    op.require(condition.dtype == BOOL and a.dtype == b.dtype, "operands are of several dtypes")
    if fold_by(op, lambda chosen, x, y: x if chosen else y, a.dtype):
        return
    spec = Spec(broadcast(op, condition.shape, a.shape, b.shape), a.dtype)
    step = standard("Where", elementwise=True, moves=True)
    op.step(step, [op.input(index) for index in range(3)], [op.output(spec)])


@rule("Cast", since=6, newest=28)
def cast(op: Operation) -> None:
    spec, number = op.spec(0), int(op.attribute("to", 0))
    dtype = DTYPES.get(number)
    if dtype is None:
        op.refuse(f"no kernel casts to dtype {number}")
    if dtype == spec.dtype:
        op.view(op.input(0), spec.shape)
    elif not (dtype in INDICES and spec.dtype in INDICES and fold_by(op, lambda x: x, dtype)):
        op.step(standard("Cast", moves=True), [op.input(0)], [op.output(Spec(spec.shape, dtype))])
