"""Standard operators that move elements and change none."""

from __future__ import annotations

import math
from typing import NamedTuple

from onnx_iron.dtypes import INT64, Spec
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.fold import fold
from onnx_iron.provider.standard.rule import both_ways, is_one, rule, stays


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
        if rest <= 0 or (spec.elements % rest != 0 and not op.is_guess(0)):
            op.refuse(f"{spec} does not reshape to {wanted}")
        shape[shape.index(-1)] = spec.elements // rest
    # While a node is claimed, a guess may have any number of elements.
    if not op.is_guess(0) and math.prod(shape) != spec.elements:
        op.refuse(f"{spec} does not reshape to {wanted}")
    op.view(op.input(0), tuple(shape))


@rule("Squeeze", since=1, newest=25)
def squeeze(op: Operation) -> None:
    shape, axes = op.spec(0).shape, op.axes(1)
    if axes is None:
        op.require(not op.is_open(0), "which dimensions are 1 is known only when it runs")
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
    if stays(spec.shape, perm):
        op.view(op.input(0), shape)
    else:
        operator = standard("Transpose", moves=True, perm=perm)
        op.step(operator, [op.input(0)], [op.output(Spec(shape, spec.dtype))])


@rule("Concat", since=4, newest=13)
def concat(op: Operation) -> None:
    op.require(op.input_count > 0, "it has no input")
    specs = [op.spec(index) for index in range(op.input_count)]
    axis = op.axis(0, len(specs[0].shape))
    first, *others = ((s.dtype, s.shape[:axis], s.shape[axis + 1 :]) for s in specs)
    same = all(other == first for other in others)
    if not same:
        op.refuse(
            f"inputs {', '.join(map(str, specs))} differ outside axis {axis}",
            [
                difference
                for spec in specs[1:]
                for place, (one, other) in enumerate(zip(specs[0].shape, spec.shape, strict=False))
                if place != axis
                for difference in both_ways(None, place - len(specs[0].shape), one, other)
            ],
        )
    known = [op.known(index) for index in range(op.input_count)]
    if len(specs[0].shape) == 1 and all(part is not None for part in known):
        numbers = [number for part in known if part is not None for number in part.tolist()]
        fold(op, numbers, specs[0].dtype)
        return
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
    ranges = [Piece(0, dim, 1) for dim in spec.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        op.require(step != 0, "a step is 0")
        ranges[axis] = piece(spec.shape[axis], start, end, step)
    known = op.known(0)
    if known is not None and rank == 1:
        first, count, step = map(int, ranges[0])
        fold(op, [known[first + i * step] for i in range(count)], spec.dtype)
        return
    take(op, 0, ranges, spec)


class Piece(NamedTuple):
    """What is taken along an axis."""

    start: int
    length: int
    step: int


def piece(dim: int, start: int, end: int, step: int) -> Piece:
    """What a slice takes of a dimension."""
    if step != 1:
        taken = range(dim)[start:end:step]
        return Piece(taken.start, len(taken), step)
    first, last = (max(at + dim, 0) if at < 0 else min(at, dim) for at in (start, end))
    return Piece(first, max(last - first, 0), 1)


def take(op: Operation, index: int, ranges: list[Piece], spec: Spec, output: int = 0) -> None:
    """An output takes a piece along each axis of an input: a view where that is one in memory."""
    shape = tuple(r.length for r in ranges)
    cut = [axis for axis, r in enumerate(ranges) if r != Piece(0, spec.shape[axis], 1)]
    whole = not cut or (
        all(map(is_one, spec.shape[: cut[0]])) and len(cut) == 1 and ranges[cut[0]].step == 1
    )
    if whole:
        row = math.prod(spec.shape[cut[0] + 1 :]) if cut else 0
        first = ranges[cut[0]].start if cut else 0
        op.view(op.input(index), shape, first * row * spec.dtype.itemsize, output)
        return
    operator = standard(
        "Slice",
        moves=True,
        axes=list(range(len(ranges))),
        starts=[r.start for r in ranges],
        steps=[r.step for r in ranges],
    )
    op.step(operator, [op.input(index)], [op.output(Spec(shape, spec.dtype), output)])


@rule("Split", since=2, newest=18)
def split(op: Operation) -> None:
    spec, sizes = op.spec(0), op.integers(1, "split")
    axis = op.axis(0, len(spec.shape))
    dim = spec.shape[axis]
    if sizes is None:
        count = op.attribute("num_outputs") or len(op.node.outputs)
        op.require(count > 0, f"it has {count} outputs")
        even = op.node.since_version < 18
        op.require(not even or dim % count == 0, f"{dim} along axis {axis} is no {count} times")
        size = -(-dim // count)
        sizes = [size] * (count - 1) + [dim - size * (count - 1)]
    given = f"it splits {dim} into {sizes}"
    op.require(all(size >= 0 for size in sizes) and sum(sizes) == dim, given)
    op.require(len(sizes) == len(op.node.outputs), f"{given}, with {len(op.node.outputs)} outputs")
    start = 0
    for index, size in enumerate(sizes):
        ranges = [Piece(0, dim, 1) for dim in spec.shape]
        ranges[axis] = Piece(start, size, 1)
        start += size
        if op.node.outputs[index]:
            take(op, 0, ranges, spec, index)


@rule("Gather", since=1, newest=13)
def gather(op: Operation) -> None:
    data, indices = op.spec(0), op.spec(1)
    axis = op.axis(0, len(data.shape))
    shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    numbers, places = op.known(0), op.known(1)
    if numbers is not None and numbers.ndim == 1 and places is not None and places.ndim < 2:
        op.require(
            all(-len(numbers) <= place < len(numbers) for place in places.reshape(-1).tolist()),
            f"indices {places} are out of range for {numbers}",
        )
        fold(op, numbers[places.astype(int)], data.dtype)
        return
    output = op.output(Spec(shape, data.dtype))
    op.step(standard("Gather", moves=True, axis=axis), [op.input(0), op.input(1)], [output])


@rule("GatherElements", since=11, newest=13)
def gather_elements(op: Operation) -> None:
    data, indices = op.spec(0), op.spec(1)
    axis = op.axis(0, len(data.shape))
    output = op.output(Spec(indices.shape, data.dtype))
    operator = standard("GatherElements", moves=True, axis=axis)
    op.step(operator, [op.input(0), op.input(1)], [output])


@rule("GatherND", since=11, newest=13)
def gather_nd(op: Operation) -> None:
    data, indices = op.spec(0), op.spec(1)
    batch = int(op.attribute("batch_dims", 0))
    op.require(bool(indices.shape) and batch >= 0, f"its indices are {indices}")
    op.require(not op.is_open(1, -1), "how many numbers a place has is known only when it runs")
    depth = int(indices.shape[-1])
    op.require(batch + depth <= len(data.shape), f"its indices are {indices} for {data}")
    shape = indices.shape[:-1] + data.shape[batch + depth :]
    operator = standard("GatherND", moves=True, batch_dims=batch)
    op.step(operator, [op.input(0), op.input(1)], [op.output(Spec(shape, data.dtype))])


@rule("Size", since=1, newest=25)
def size_of(op: Operation) -> None:
    fold(op, op.spec(0).elements, INT64)


@rule("Shape", since=1, newest=25)
def shape_of(op: Operation) -> None:
    shape = op.spec(0).shape
    start, end = op.attribute("start", 0), op.attribute("end", len(shape))
    fold(op, shape[start:end], INT64)
