"""Standard operators that sum: products of matrices, norms of rows."""

from __future__ import annotations

import math

import numpy as np

from onnx_iron.dtypes import FLOATS, Spec
from onnx_iron.operators.arithmetic import Add, Mul
from onnx_iron.operators.gemm import GEMM
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.provider.lowering import Difference, Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.rule import broadcast, rule


@rule("MatMul", since=1, newest=13)
def matmul(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    if a.dtype != b.dtype:
        op.refuse(f"operands are {a.dtype.name} and {b.dtype.name}")
    op.require(bool(a.shape) and bool(b.shape), "an operand is a scalar")
    # As numpy: a vector is a row on the left, a column on the right, and leaves no dimension.
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        place = -min(len(b.shape), 2)
        op.refuse(
            f"shapes {a.shape} and {b.shape} do not multiply",
            [
                Difference(0, -1, left[-1], right[-2]),
                Difference(1, place, right[-2], left[-1]),
            ],
        )
    shape = broadcast(op, left[:-2], right[:-2])
    shape += left[-2:-1] if len(a.shape) > 1 else ()
    shape += right[-1:] if len(b.shape) > 1 else ()
    op.step(standard("MatMul"), [op.input(0), op.input(1)], [op.output(Spec(shape, a.dtype))])


@rule("Gemm", since=7, newest=13)
def gemm(op: Operation) -> None:
    a, left, b, right = op.input(0), op.spec(0), op.input(1), op.spec(1)
    op.require(len(left.shape) == len(right.shape) == 2, "an operand is no matrix")
    if op.attribute("transA", 0):
        left = Spec(left.shape[::-1], left.dtype)
        turned = op.temporary(left)
        op.step(standard("Transpose", moves=True, perm=[1, 0]), [a], [turned])
        a = turned
    col_maj = int(op.attribute("transB", 0))
    rows, inner = right.shape if col_maj else right.shape[::-1]
    op.require(left.dtype == right.dtype and left.shape[1] == inner, f"{left} by {right}")
    op.require(left.dtype in FLOATS, f"operands are {left.dtype.name}")
    spec = Spec((left.shape[0], rows), left.dtype)
    factors = float(op.attribute("alpha", 1.0)), float(op.attribute("beta", 1.0))
    # As onnxruntime: a factor of 0 leaves C out, whatever is in it.
    added = op.has(2) and factors[1] != 0.0
    steps = 1 + (factors[0] != 1.0) + added
    outputs = [op.temporary(spec) for _ in range(steps - 1)] + [op.output(spec)]
    op.step(GEMM(b_col_maj=bool(col_maj)), [a, b], [outputs[0]])
    if factors[0] != 1.0:
        op.step(Mul(), [outputs[0], scalar(op, factors[0], spec)], [outputs[1]])
    if added:
        c, third = op.input(2), op.spec(2)
        op.require(third.dtype == spec.dtype, f"C is {third.dtype.name}")
        op.require(broadcast(op, spec.shape, third.shape) == spec.shape, f"C is {third.shape}")
        if factors[1] != 1.0:
            scaled = op.temporary(third)
            op.step(Mul(), [c, scalar(op, factors[1], spec)], [scaled])
            c = scaled
        op.step(Add(), [outputs[-2], c], [outputs[-1]])


def scalar(op: Operation, value: float, like: Spec) -> str:
    """A constant scalar."""
    return op.literal(np.array(value, like.dtype))


@rule("RMSNormalization", since=23, newest=23)
@rule("LayerNormalization", since=17, newest=17)
def normalization(op: Operation) -> None:
    spec = op.spec(0)
    rank, stash = len(spec.shape), op.attribute("stash_type", 1)
    op.require(op.output_count == 1, "mean and deviation are asked for")
    op.require(stash == 1, f"stash_type is {stash}, the kernel computes in float32 (1)")
    axis = op.axis(-1, rank)
    epsilon = float(op.attribute("epsilon", 1e-5))
    inputs = [op.input(index) for index in range(op.input_count)]
    factors = [op.spec(index) for index in range(1, op.input_count)]
    if axis != rank - 1:
        # As rows of what is normalised, which are taken for one axis.
        whole = all(factor.shape == spec.shape[axis:] for factor in factors)
        op.require(whole, f"axis is {axis}, and a scale or bias is not {spec.shape[axis:]}")
        width = math.prod(spec.shape[axis:])
        flat = Spec((math.prod(spec.shape[:axis]), width), spec.dtype)
        parts = [
            op.viewed(inputs[0], flat.shape),
            *(op.viewed(name, (width,)) for name in inputs[1:]),
        ]
        made = op.temporary(flat)
        op.step(standard(op.node.op_type, axis=1, epsilon=epsilon), parts, [made])
        op.view(made, spec.shape)
        return
    if all(factor.shape == spec.shape[-1:] for factor in factors):
        operator = standard(op.node.op_type, axis=axis, epsilon=epsilon)
        op.step(operator, inputs, [op.output(spec)])
        return
    # A scale or a bias of another shape broadcasts, in a step of its own.
    for factor in factors:
        op.require(factor.dtype == spec.dtype, f"operands are {spec} and {factor}")
        op.require(broadcast(op, spec.shape, factor.shape) == spec.shape, f"{factor} for {spec}")
    centred = op.node.op_type == "LayerNormalization"
    outputs = [op.temporary(spec) for _ in factors] + [op.output(spec)]
    norm = LayerNorm(epsilon) if centred else RMSNorm(epsilon)
    op.step(norm, inputs[:1], outputs[:1])
    for index, kind in zip(range(1, len(inputs)), (Mul(), Add()), strict=False):
        op.step(kind, [outputs[index - 1], inputs[index]], [outputs[index]])
