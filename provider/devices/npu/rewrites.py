"""What a scheduled subgraph is rewritten to before the NPU takes its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from onnx_iron.dtypes import BFLOAT16, INT32, Spec
from onnx_iron.operators.arithmetic import Add, Div, Mul, Sub
from onnx_iron.operators.gemm import GEMM, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.narrow import Narrow
from onnx_iron.operators.rope import RoPE
from onnx_iron.provider.arena import ALIGNMENT
from onnx_iron.provider.lowering import KernelCall, Lowering, View
from onnx_iron.provider.operator import standard
from onnx_iron.provider.subgraph import Subgraph


def rewritten(subgraph: Subgraph) -> Subgraph:
    """A copy of the subgraph, as the kernels and DMAs take it."""
    copy = subgraph.copy()
    round_angles(copy)
    take_whole_rows(copy)
    return copy


def round_angles(subgraph: Subgraph) -> None:
    """RoPE's kernel takes bfloat16 angles: the host rounds float32 ones, once for all readers."""
    lowering = subgraph.lowering
    rounded: dict[str, str] = {}
    steps: list[KernelCall] = []
    for step in subgraph.steps:
        angles = step.inputs[1] if isinstance(step.op, RoPE) else None
        wanted = lowering.specs[step.outputs[0]].dtype
        if angles is not None and wanted == BFLOAT16 != lowering.specs[angles].dtype:
            if angles not in rounded:
                spec = Spec(lowering.specs[angles].shape, BFLOAT16)
                rounded[angles] = lowering.fresh(angles, spec)
                steps.append(
                    KernelCall(step.name, standard("Cast", moves=True), [angles], [rounded[angles]])
                )
            step.inputs[1] = rounded[angles]
        steps.append(step)
    subgraph.steps[:] = steps


def join_weights(subgraph: Subgraph) -> dict[str, tuple[int, ...]]:
    """Constant weights of products that read one operand lie side by side on the NPU, in the order
    of their names, so that prefill and decode have them in the same order, and share them.

    Returns:
        The values that are made so, with the numbers of the inputs that they are made of.
    """
    lowering, numbers = subgraph.lowering, {n: i for i, n in enumerate(subgraph.inputs)}
    reads = Counter(
        lowering.resolve(name)[0]
        for step in subgraph.steps
        for name in step.inputs
        if name is not None
    )
    groups: dict[tuple[str, int, int], list[str]] = {}
    for step in subgraph.steps:
        match step.op:
            case GEMV():
                weight, x = step.inputs
            case GEMM() | ProjectionGEMM() if step.op.b_col_maj:
                x, weight = step.inputs[:2]
            case _:
                continue
        assert weight is not None
        assert x is not None
        spec = lowering.specs[weight]
        constant = weight in numbers and subgraph.constant[numbers[weight]] and reads[weight] == 1
        if constant and spec.dtype == BFLOAT16 and spec.bytes % ALIGNMENT == 0:
            groups.setdefault((*lowering.resolve(x), spec.shape[1]), []).append(weight)
    joined = {}
    for (*_, k), weights in groups.items():
        if len(weights) < 2:
            continue
        weights.sort()
        rows = sum(lowering.specs[weight].shape[0] for weight in weights)
        whole = lowering.fresh(weights[0], Spec((rows, k), BFLOAT16))
        joined[whole] = tuple(numbers[weight] for weight in weights)
        offset = 0
        for weight in weights:
            lowering.views[weight] = View(whole, offset)
            offset += lowering.specs[weight].bytes
    return joined


def take_whole_rows(subgraph: Subgraph) -> None:
    """A part of a flattened matrix that is always a number of its rows is read as rows: a DMA can't
    begin at any element. ``Narrow(flat, start)`` with a start that is a multiple of the length
    becomes ``Narrow(matrix, start / length)``.
    """
    lowering = subgraph.lowering
    made = {name: step for step in subgraph.steps for name in step.outputs}
    steps: list[KernelCall] = []
    for step in subgraph.steps:
        if not isinstance(step.op, Narrow) or len(step.inputs) > 2:
            steps.append(step)
            continue
        (flat, start), length = step.inputs, step.op.length
        if (
            flat is None
            or start is None
            or lowering.specs[flat].dtype != BFLOAT16
            or len(lowering.specs[flat].shape) != 1
            or not is_multiple(start, length, made, lowering)
        ):
            steps.append(step)
            continue
        elements = lowering.specs[flat].elements
        matrix = lowering.fresh(flat, Spec((elements // length, length), BFLOAT16))
        lowering.views[matrix] = View(flat, 0)
        divisor = lowering.fresh("literal", Spec((), INT32))
        lowering.literals[divisor] = np.array(length, INT32)
        row = lowering.fresh(start, lowering.specs[start])
        steps.append(KernelCall(step.name, Div(), [start, divisor], [row]))
        taken = lowering.fresh(step.outputs[0], Spec((1, length), BFLOAT16))
        steps.append(KernelCall(step.name, Narrow(axis=0, length=1), [matrix, row], [taken]))
        lowering.views[step.outputs[0]] = View(taken, 0)
        if step.outputs[0] in subgraph.placed:
            subgraph.placed[taken] = subgraph.placed.pop(step.outputs[0])
    subgraph.steps[:] = steps


def is_multiple(name: str, of: int, made: Mapping[str, KernelCall], lowering: Lowering) -> bool:
    """Whether a scalar is a multiple of a number, whatever the call's values are."""
    if of > 0 and name in lowering.integers:
        return all(int(n) % of == 0 for n in lowering.integers[name].reshape(-1))
    step = made.get(name)
    if step is None or of < 1 or not isinstance(step.op, Add | Mul | Sub):
        return False
    parts = [
        operand is not None and is_multiple(operand, of, made, lowering) for operand in step.inputs
    ]
    return any(parts) if isinstance(step.op, Mul) else all(parts)
