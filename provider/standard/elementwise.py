"""Standard operators that compute element by element."""

from __future__ import annotations

from onnx_iron.dtypes import BOOL, DTYPES, INDICES, Spec
from onnx_iron.operators.arithmetic import Add, Div, Mul, Sub
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.silu import SiLU
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.standard.rule import broadcast, rule
from onnx_iron.provider.standard.shapes import fold

ARITHMETIC = {op.__name__: op for op in (Add, Sub, Mul, Div)}


@rule("Add", "Sub", "Mul", "Div", since=7, newest=14)
@rule("Pow", since=7, newest=15)
@rule("Mod", since=10, newest=28)
def binary(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    if a.dtype != b.dtype:
        op.refuse(f"operands are {a.dtype.name} and {b.dtype.name}")
    kind = op.node.op_type
    if kind == "Mod":
        operator: Operator = standard(kind, elementwise=True, fmod=op.attribute("fmod", 0))
    else:
        operator = ARITHMETIC[kind]() if kind in ARITHMETIC else standard(kind, elementwise=True)
    output = op.output(Spec(broadcast(op, a.shape, b.shape), a.dtype))
    op.step(operator, [op.input(0), op.input(1)], [output])


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
        operator = standard(op.node.op_type, elementwise=True)
        op.step(operator, [first, op.input(index)], [output])
        first = output


@rule("Sigmoid", "Tanh", "Sqrt", "Exp", "Neg", "Reciprocal", "Abs", since=6, newest=13)
@rule("Log", since=6, newest=13)
@rule("Softplus", since=1, newest=22)
@rule("Relu", since=6, newest=14)
@rule("Erf", since=9, newest=13)
def unary(op: Operation) -> None:
    operator = standard(op.node.op_type, elementwise=True)
    op.step(operator, [op.input(0)], [op.output(op.spec(0))])


@rule("Equal", since=7, newest=19)
@rule("Less", "Greater", since=9, newest=13)
@rule("LessOrEqual", "GreaterOrEqual", since=12, newest=16)
def compare(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    op.require(a.dtype == b.dtype, f"operands are {a.dtype.name} and {b.dtype.name}")
    output = op.output(Spec(broadcast(op, a.shape, b.shape), BOOL))
    op.step(standard(op.node.op_type), [op.input(0), op.input(1)], [output])


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
    spec = Spec(broadcast(op, condition.shape, a.shape, b.shape), a.dtype)
    operator = standard("Where", elementwise=True, moves=True)
    op.step(operator, [op.input(index) for index in range(3)], [op.output(spec)])


@rule("Cast", since=6, newest=28)
def cast(op: Operation) -> None:
    spec, number = op.spec(0), int(op.attribute("to", 0))
    dtype = DTYPES.get(number)
    if dtype is None:
        op.refuse(f"no kernel casts to dtype {number}")
    known = op.known(0)
    if dtype == spec.dtype:
        op.view(op.input(0), spec.shape)
    elif known is not None and dtype in INDICES:
        fold(op, known, dtype)
    else:
        op.step(standard("Cast", moves=True), [op.input(0)], [op.output(Spec(spec.shape, dtype))])
