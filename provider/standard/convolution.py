"""The standard convolution: the windows as columns, by a product of matrices."""

from __future__ import annotations

import math
from typing import Any

from onnx_iron.dtypes import FLOAT32, FLOATS, Shape, Spec
from onnx_iron.operators.arithmetic import Add
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.rule import rule

# Windows overlap: unfolded, an input takes as many times its bytes as the kernel has elements.
_MOST_BYTES = 1 << 28

# Multiplications from which onnxruntime's own float32 kernel gains more than the switch to it
# costs: docs/performance.md.
FASTER_ELSEWHERE = 1 << 16


@rule("Conv", since=1, newest=22)
def conv(op: Operation) -> None:
    spec, weight = op.spec(0), op.spec(1)
    spatial = len(spec.shape) - 2
    op.require(spec.dtype in FLOATS and weight.dtype == spec.dtype, f"{spec} by {weight}")
    op.require(spatial in (1, 2), f"its input is {spec}; one and two spatial axes are known")
    op.require(len(weight.shape) == len(spec.shape), f"its weight is {weight} for {spec}")
    (batch, channels, *dims), (outer, inner, *kernel) = spec.shape, weight.shape
    given = [int(size) for size in op.attribute("kernel_shape", kernel)]
    op.require(given == kernel, f"kernel_shape is {given} for {weight}")
    groups = int(op.attribute("group", 1))
    fits = groups > 0 and channels == inner * groups and outer % groups == 0
    op.require(fits, f"{weight} in {groups} groups for {spec}")
    strides, dilations = (
        [int(step) for step in op.attribute(name, [1] * spatial)]
        for name in ("strides", "dilations")
    )
    lists = len(strides) == len(dilations) == spatial and min(*strides, *dilations) > 0
    op.require(lists, f"strides are {strides} and dilations {dilations}")
    begins, ends = _pads(op, dims, kernel, strides, dilations)
    windows = [
        (dim + before + after - (size - 1) * dilation - 1) // stride + 1
        for dim, before, after, size, dilation, stride in zip(
            dims, begins, ends, kernel, dilations, strides, strict=True
        )
    ]
    op.require(all(count > 0 for count in windows), f"no window of {weight} fits into {spec}")
    count, elements = math.prod(windows), math.prod(kernel)
    work = batch * outer * inner * elements * count
    op.leave_if(
        spec.dtype == FLOAT32 and work >= FASTER_ELSEWHERE,
        f"for float32 {spec.shape} by {weight.shape}",
    )
    columns = Spec((batch, channels * elements, count), spec.dtype)
    if not op.is_guess(0):
        op.require(columns.bytes <= _MOST_BYTES, f"its windows are {columns}: too big")
    if elements == 1 and set(strides) == {1} and not any(begins) and not any(ends):
        unfolded = op.viewed(op.input(0), columns.shape)
    else:
        unfolded = op.temporary(columns)
        operator = standard(
            "Unfold",
            moves=True,
            kernel=kernel,
            strides=strides,
            dilations=dilations,
            begins=begins,
            ends=ends,
        )
        op.step(operator, [op.input(0)], [unfolded])
    filters: Shape = (outer, inner * elements)
    product: Shape = (batch, outer, count)
    if groups > 1:
        filters = (groups, outer // groups, inner * elements)
        product = (batch, groups, outer // groups, count)
        unfolded = op.viewed(unfolded, (batch, groups, inner * elements, count))
    shape, rows = (batch, outer, *windows), (batch, outer, count)
    made = op.temporary(Spec(product, spec.dtype))
    op.step(standard("MatMul"), [op.viewed(op.input(1), filters), unfolded], [made])
    if op.has(2):
        bias = op.spec(2)
        op.require(bias == Spec((outer,), spec.dtype), f"its bias is {bias} for {weight}")
        added = op.temporary(Spec(rows, spec.dtype))
        op.step(Add(), [op.viewed(made, rows), op.viewed(op.input(2), (outer, 1))], [added])
        made = added
    op.view(made, shape)


def _pads(
    op: Operation, dims: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[Any], list[Any]]:
    """The zeros before and after each spatial axis."""
    spatial, automatic = len(dims), op.attribute("auto_pad", "NOTSET")
    pads = [int(count) for count in op.attribute("pads", [0] * 2 * spatial)]
    if automatic in ("NOTSET", "VALID"):
        pads = pads if automatic == "NOTSET" else [0] * 2 * spatial
        op.require(len(pads) == 2 * spatial and min(pads) >= 0, f"pads are {pads}")
        return pads[:spatial], pads[spatial:]
    op.require(automatic in ("SAME_UPPER", "SAME_LOWER"), f"auto_pad is {automatic!r}")
    begins, ends = [], []
    for dim, size, stride, dilation in zip(dims, kernel, strides, dilations, strict=True):
        windows = -(-dim // stride)
        total = (windows - 1) * stride + (size - 1) * dilation + 1 - dim
        total = total if total > 0 else 0
        half = total // 2
        begins.append(half if automatic == "SAME_UPPER" else total - half)
        ends.append(total - begins[-1])
    return begins, ends
