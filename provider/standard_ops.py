"""Standard ONNX operators in terms of the kernels: one rule each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.specs import BOOL, DTYPES, INT64, Shape, Spec

Rule: TypeAlias = Callable[[Operation], None]

RULES: dict[str, Rule] = {}


def rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the rule of some operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(op_types, function))
        return function

    return register


def broadcast(op: Operation, *shapes: Shape) -> Shape:
    """The shape that numpy's broadcasting gives."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        op.refuse(f"shapes {' and '.join(map(str, shapes))} do not broadcast")


@rule("Add", "Sub", "Mul", "Div", "Pow", "Mod")
def binary(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    op.require(a.dtype == b.dtype, f"operands are {a.dtype.name} and {b.dtype.name}")
    attributes = {"fmod": op.attribute("fmod", 0)} if op.node.op_type == "Mod" else {}
    output = op.output(Spec(broadcast(op, a.shape, b.shape), a.dtype))
    op.step(op.node.op_type, [op.input(0), op.input(1)], [output], **attributes)


@rule("Max", "Min")
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
        op.step(op.node.op_type, [first, op.input(index)], [output])
        first = output


@rule("Sigmoid", "Tanh", "Relu", "Sqrt", "Exp", "Erf", "Neg", "Reciprocal", "Abs")
def unary(op: Operation) -> None:
    op.step(op.node.op_type, [op.input(0)], [op.output(op.spec(0))])


@rule("Swish")
def swish(op: Operation) -> None:
    alpha = op.attribute("alpha", 1.0)
    op.require(alpha == 1.0, f"alpha is {alpha}, the kernel has 1")
    op.step("SiLU", [op.input(0)], [op.output(op.spec(0))])


@rule("Gelu")
def gelu(op: Operation) -> None:
    approximate = op.attribute("approximate", "none")
    op.step("GELU", [op.input(0)], [op.output(op.spec(0))], approximate=approximate)


@rule("Where")
def where(op: Operation) -> None:
    condition, a, b = (op.spec(index) for index in range(3))
    op.require(condition.dtype == BOOL and a.dtype == b.dtype, "operands are of several dtypes")
    spec = Spec(broadcast(op, condition.shape, a.shape, b.shape), a.dtype)
    op.step("Where", [op.input(index) for index in range(3)], [op.output(spec)])


@rule("Cast")
def cast(op: Operation) -> None:
    spec, number = op.spec(0), int(op.attribute("to", 0))
    dtype = DTYPES.get(number)
    if dtype is None:
        op.refuse(f"no kernel casts to dtype {number}")
    if dtype == spec.dtype:
        op.view(op.input(0), spec.shape)
    else:
        op.step("Cast", [op.input(0)], [op.output(Spec(spec.shape, dtype))])


# -- shapes ---------------------------------------------------------------------------------


@rule("Identity")
def identity(op: Operation) -> None:
    op.view(op.input(0), op.spec(0).shape)


@rule("Reshape")
def reshape(op: Operation) -> None:
    spec, wanted = op.spec(0), op.integers(1)
    if wanted is None:
        op.refuse("input 1, the shape, is missing")
    shape = list(wanted)
    if not op.attribute("allowzero", 0):
        for axis, dim in enumerate(shape):
            if dim == 0:
                op.require(axis < len(spec.shape), f"shape {wanted} copies dim {axis} of {spec}")
                shape[axis] = spec.shape[axis]
    if -1 in shape:
        rest = math.prod(dim for dim in shape if dim != -1)
        op.require(rest > 0 and spec.elements % rest == 0, f"{spec} does not reshape to {wanted}")
        shape[shape.index(-1)] = spec.elements // rest
    op.require(math.prod(shape) == spec.elements, f"{spec} does not reshape to {wanted}")
    op.view(op.input(0), tuple(shape))


@rule("Squeeze")
def squeeze(op: Operation) -> None:
    shape, axes = op.spec(0).shape, op.integers(1, "axes")
    if axes is None:
        dropped = {axis for axis, dim in enumerate(shape) if dim == 1}
    else:
        dropped = {op.from_front(axis, len(shape)) for axis in axes}
    op.require(all(shape[axis] == 1 for axis in dropped), f"axes {axes} of {shape} are not all 1")
    op.view(op.input(0), tuple(dim for axis, dim in enumerate(shape) if axis not in dropped))


@rule("Unsqueeze")
def unsqueeze(op: Operation) -> None:
    shape, axes = op.spec(0).shape, op.integers(1, "axes")
    if axes is None:
        op.refuse("input 1, the axes, is missing")
    rank = len(shape) + len(axes)
    added = {op.from_front(axis, rank) for axis in axes}
    op.require(len(added) == len(axes), f"axes {axes} repeat")
    dims = iter(shape)
    op.view(op.input(0), tuple(1 if axis in added else next(dims) for axis in range(rank)))


@rule("Flatten")
def flatten(op: Operation) -> None:
    shape = op.spec(0).shape
    axis = int(op.attribute("axis", 1))
    op.require(-len(shape) <= axis <= len(shape), f"axis {axis} is out of range for {shape}")
    axis = axis + len(shape) if axis < 0 else axis
    op.view(op.input(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@rule("Transpose")
def transpose(op: Operation) -> None:
    spec = op.spec(0)
    perm = [int(i) for i in op.attribute("perm", range(len(spec.shape))[::-1])]
    op.require(sorted(perm) == list(range(len(spec.shape))), f"perm {perm} is no permutation")
    shape = tuple(spec.shape[axis] for axis in perm)
    moved = [axis for axis in perm if spec.shape[axis] != 1]
    if moved == sorted(moved):
        op.view(op.input(0), shape)
    else:
        op.step("Transpose", [op.input(0)], [op.output(Spec(shape, spec.dtype))], perm=perm)


@rule("Concat")
def concat(op: Operation) -> None:
    op.require(op.input_count > 0, "it has no input")
    specs = [op.spec(index) for index in range(op.input_count)]
    axis = op.axis(0, len(specs[0].shape))
    rest = {(s.dtype, len(s.shape), s.shape[:axis], s.shape[axis + 1 :]) for s in specs}
    op.require(len(rest) == 1, f"inputs {', '.join(map(str, specs))} differ outside axis {axis}")
    shape = list(specs[0].shape)
    shape[axis] = sum(s.shape[axis] for s in specs)
    output = op.output(Spec(tuple(shape), specs[0].dtype))
    names: list[str | None] = [op.input(index) for index in range(op.input_count)]
    op.step("Concat", names, [output], axis=axis)


@rule("Slice")
def slice_(op: Operation) -> None:
    spec = op.spec(0)
    rank = len(spec.shape)
    starts, ends = op.integers(1, "starts"), op.integers(2, "ends")
    if starts is None or ends is None:
        op.refuse("starts or ends are missing")
    axes = op.integers(3, "axes") or list(range(len(starts)))
    steps = op.integers(4) or [1] * len(starts)
    op.require(len(starts) == len(ends) == len(axes) == len(steps), "lists differ in length")
    ranges = [range(dim) for dim in spec.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        op.require(step != 0, "a step is 0")
        axis = op.from_front(axis, rank)
        ranges[axis] = range(spec.shape[axis])[start:end:step]
    take(op, 0, ranges, spec)


def take(op: Operation, index: int, ranges: list[range], spec: Spec) -> None:
    """The output takes a range along each axis of an input: a view where that is one piece."""
    shape = tuple(len(r) for r in ranges)
    cut = [axis for axis, r in enumerate(ranges) if r != range(spec.shape[axis])]
    whole = not cut or (
        math.prod(spec.shape[: cut[0]]) == 1 and len(cut) == 1 and ranges[cut[0]].step == 1
    )
    if whole:
        row = math.prod(spec.shape[cut[0] + 1 :]) if cut else 0
        first = ranges[cut[0]].start if cut else 0
        op.view(op.input(index), shape, first * row * spec.dtype.itemsize)
        return
    op.step(
        "Slice",
        [op.input(index)],
        [op.output(Spec(shape, spec.dtype))],
        axes=list(range(len(ranges))),
        starts=[r.start for r in ranges],
        steps=[r.step for r in ranges],
    )


@rule("Gather")
def gather(op: Operation) -> None:
    data, indices = op.spec(0), op.spec(1)
    axis = op.axis(0, len(data.shape))
    shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    output = op.output(Spec(shape, data.dtype))
    op.step("Gather", [op.input(0), op.input(1)], [output], axis=axis)


@rule("Shape")
def shape_of(op: Operation) -> None:
    shape = op.spec(0).shape
    start, end = op.attribute("start", 0), op.attribute("end", len(shape))
    taken = np.array(shape[start:end], INT64)
    op.view(op.literal(taken), taken.shape)


# -- sums -----------------------------------------------------------------------------------


@rule("MatMul")
def matmul(op: Operation) -> None:
    a, b = op.spec(0), op.spec(1)
    op.require(a.dtype == b.dtype, f"operands are {a.dtype.name} and {b.dtype.name}")
    op.require(bool(a.shape) and bool(b.shape), "an operand is a scalar")
    # As numpy: a vector is a row on the left, a column on the right, and leaves no dimension.
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    op.require(left[-1] == right[-2], f"shapes {a.shape} and {b.shape} do not multiply")
    shape = broadcast(op, left[:-2], right[:-2])
    shape += left[-2:-1] if len(a.shape) > 1 else ()
    shape += right[-1:] if len(b.shape) > 1 else ()
    op.step("MatMul", [op.input(0), op.input(1)], [op.output(Spec(shape, a.dtype))])


@rule("Gemm")
def gemm(op: Operation) -> None:
    a, left, b, right = op.input(0), op.spec(0), op.input(1), op.spec(1)
    op.require(len(left.shape) == len(right.shape) == 2, "an operand is no matrix")
    if op.attribute("transA", 0):
        left = Spec(left.shape[::-1], left.dtype)
        turned = op.temporary(left)
        op.step("Transpose", [a], [turned], perm=[1, 0])
        a = turned
    col_maj = int(op.attribute("transB", 0))
    rows, inner = right.shape if col_maj else right.shape[::-1]
    op.require(left.dtype == right.dtype and left.shape[1] == inner, f"{left} by {right}")
    spec = Spec((left.shape[0], rows), left.dtype)
    factors = float(op.attribute("alpha", 1.0)), float(op.attribute("beta", 1.0))
    steps = 1 + (factors[0] != 1.0) + op.has(2)
    outputs = [op.temporary(spec) for _ in range(steps - 1)] + [op.output(spec)]
    op.step("GEMM", [a, b], [outputs[0]], b_col_maj=col_maj)
    if factors[0] != 1.0:
        op.step("Mul", [outputs[0], scalar(op, factors[0], spec)], [outputs[1]])
    if op.has(2):
        c, added = op.input(2), op.spec(2)
        op.require(added.dtype == spec.dtype, f"C is {added.dtype.name}")
        op.require(broadcast(op, spec.shape, added.shape) == spec.shape, f"C is {added.shape}")
        if factors[1] != 1.0:
            scaled = op.temporary(added)
            op.step("Mul", [c, scalar(op, factors[1], spec)], [scaled])
            c = scaled
        op.step("Add", [outputs[-2], c], [outputs[-1]])


def scalar(op: Operation, value: float, like: Spec) -> str:
    """A constant scalar."""
    return op.literal(np.array(value, like.dtype))


@rule("Softmax")
def softmax(op: Operation) -> None:
    spec = op.spec(0)
    rank = len(spec.shape)
    axis = op.axis(-1 if op.node.since_version >= 13 else 1, rank)
    op.require(axis == rank - 1, f"axis is {axis}, the kernel has the last one, {rank - 1}")
    op.step("Softmax", [op.input(0)], [op.output(spec)])


@rule("ReduceMean", "ReduceSum")
def reduce(op: Operation) -> None:
    spec, axes = op.spec(0), op.integers(1, "axes")
    rank = len(spec.shape)
    if not axes and op.attribute("noop_with_empty_axes", 0):
        op.view(op.input(0), spec.shape)
        return
    reduced = {op.from_front(axis, rank) for axis in axes or range(rank)}
    op.require(reduced == {rank - 1}, f"axes {axes} are not the last one alone")
    keep = bool(op.attribute("keepdims", 1))
    shape = spec.shape[:-1] + ((1,) if keep else ())
    output = op.output(Spec(shape, spec.dtype))
    op.step(op.node.op_type, [op.input(0)], [output], keepdims=int(keep))


@rule("RMSNormalization", "LayerNormalization")
def normalization(op: Operation) -> None:
    spec = op.spec(0)
    op.require(op.output_count == 1, "mean and deviation are asked for")
    inputs = [op.input(index) for index in range(op.input_count)]
    attributes = {
        "axis": op.axis(-1, len(spec.shape)),
        "epsilon": float(op.attribute("epsilon", 1e-5)),
    }
    op.step(op.node.op_type, inputs, [op.output(spec)], **attributes)
