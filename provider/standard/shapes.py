"""Standard operators that move elements and change none."""

from __future__ import annotations

import math

import numpy as np

from onnx_iron.dtypes import INT64, Spec
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.rule import rule


@rule("Identity", since=1, newest=25)
def identity(op: Operation) -> None:
    op.view(op.input(0), op.spec(0).shape)


@rule("Reshape", since=5, newest=25)
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
        if rest <= 0 or spec.elements % rest != 0:
            op.refuse(f"{spec} does not reshape to {wanted}")
        shape[shape.index(-1)] = spec.elements // rest
    if math.prod(shape) != spec.elements:
        op.refuse(f"{spec} does not reshape to {wanted}")
    op.view(op.input(0), tuple(shape))


@rule("Squeeze", since=1, newest=25)
def squeeze(op: Operation) -> None:
    shape, axes = op.spec(0).shape, op.axes(1)
    if axes is None:
        op.require(not op.is_guess(0), "which dimensions are 1 is known only when it runs")
        dropped = {axis for axis, dim in enumerate(shape) if dim == 1}
    else:
        dropped = {op.from_front(axis, len(shape)) for axis in axes}
    op.require(all(shape[axis] == 1 for axis in dropped), f"axes {axes} of {shape} are not all 1")
    op.view(op.input(0), tuple(dim for axis, dim in enumerate(shape) if axis not in dropped))


@rule("Unsqueeze", since=1, newest=25)
def unsqueeze(op: Operation) -> None:
    shape, axes = op.spec(0).shape, op.axes(1)
    if axes is None:
        op.refuse("input 1, the axes, is missing")
    rank = len(shape) + len(axes)
    added = {op.from_front(axis, rank) for axis in axes}
    op.require(len(added) == len(axes), f"axes {axes} repeat")
    dims = iter(shape)
    op.view(op.input(0), tuple(1 if axis in added else next(dims) for axis in range(rank)))


@rule("Flatten", since=1, newest=25)
def flatten(op: Operation) -> None:
    shape = op.spec(0).shape
    axis = int(op.attribute("axis", 1))
    op.require(-len(shape) <= axis <= len(shape), f"axis {axis} is out of range for {shape}")
    axis = axis + len(shape) if axis < 0 else axis
    op.view(op.input(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@rule("Transpose", since=1, newest=25)
def transpose(op: Operation) -> None:
    spec = op.spec(0)
    perm = [int(i) for i in op.attribute("perm", range(len(spec.shape))[::-1])]
    op.require(sorted(perm) == list(range(len(spec.shape))), f"perm {perm} is no permutation")
    shape = tuple(spec.shape[axis] for axis in perm)
    moved = [axis for axis in perm if spec.shape[axis] != 1]
    if moved == sorted(moved):
        op.view(op.input(0), shape)
    else:
        operator = standard("Transpose", moves=True, perm=perm)
        op.step(operator, [op.input(0)], [op.output(Spec(shape, spec.dtype))])


@rule("Concat", since=4, newest=13)
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
    op.step(standard("Concat", moves=True, axis=axis), names, [output])


@rule("Slice", since=1, newest=13)
def slice_(op: Operation) -> None:
    spec = op.spec(0)
    rank = len(spec.shape)
    starts, ends = op.integers(1, "starts"), op.integers(2, "ends")
    if starts is None or ends is None:
        op.refuse("starts or ends are missing")
    axes, steps = op.axes(3), op.integers(4)
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    op.require(len(starts) == len(ends) == len(axes) == len(steps), "lists differ in length")
    axes = [op.from_front(axis, rank) for axis in axes]
    op.require(len(set(axes)) == len(axes), f"axes {axes} repeat")
    ranges = [range(dim) for dim in spec.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        op.require(step != 0, "a step is 0")
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
    operator = standard(
        "Slice",
        moves=True,
        axes=list(range(len(ranges))),
        starts=[r.start for r in ranges],
        steps=[r.step for r in ranges],
    )
    op.step(operator, [op.input(index)], [op.output(Spec(shape, spec.dtype))])


@rule("Gather", since=1, newest=13)
def gather(op: Operation) -> None:
    data, indices = op.spec(0), op.spec(1)
    axis = op.axis(0, len(data.shape))
    shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    output = op.output(Spec(shape, data.dtype))
    op.step(standard("Gather", moves=True, axis=axis), [op.input(0), op.input(1)], [output])


@rule("Shape", since=1, newest=25)
def shape_of(op: Operation) -> None:
    shape = op.spec(0).shape
    start, end = op.attribute("start", 0), op.attribute("end", len(shape))
    taken = np.array(shape[start:end], INT64)
    op.view(op.literal(taken), taken.shape)
