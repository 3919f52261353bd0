"""Standard operators along axes: reductions, softmax, running sums."""

from __future__ import annotations

import math

from onnx_iron.dtypes import FLOATS, Spec
from onnx_iron.operators.softmax import Softmax
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.standard.fold import fold
from onnx_iron.provider.standard.rule import along, rule, transposed

# What the kernel Fold calls each.
_KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}
# Those with a kernel of their own, on vectors, for floats.
_FAST = ("ReduceSum", "ReduceMean", "ReduceMax")
# Those of which an element alone is what it is.
_PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


@rule("ReduceSum", since=1, newest=13)
@rule("ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", since=1, newest=18)
@rule("ReduceMax", "ReduceMin", since=1, newest=20)
@rule("ReduceLogSum", "ReduceLogSumExp", since=1, newest=28)
def reduce(op: Operation) -> None:
    kind, spec, axes = op.node.op_type, op.spec(0), op.axes(1)
    rank = len(spec.shape)
    if not axes and op.attribute("noop_with_empty_axes", 0):
        op.require(kind in _PLAIN, "what it does without axes is not known")
        op.view(op.input(0), spec.shape)
        return
    op.require(rank > 0, "its input is a scalar")
    sizes = op.known(0)
    if kind == "ReduceProd" and sizes is not None and rank == 1 and sizes.size > 0:
        product = math.prod(sizes.tolist())
        fold(op, [product] if op.attribute("keepdims", 1) else product, spec.dtype)
        return
    reduced = sorted({op.from_front(axis, rank) for axis in axes or range(rank)})
    kept = [axis for axis in range(rank) if axis not in reduced]
    keep = bool(op.attribute("keepdims", 1))
    shape = tuple(
        1 if axis in reduced else dim for axis, dim in enumerate(spec.shape) if keep or axis in kept
    )
    x, turned = transposed(op, op.input(0), spec, [*kept, *reduced])
    rows, width = turned.shape[: len(kept)], math.prod(turned.shape[len(kept) :])
    fast = kind in _FAST and spec.dtype in FLOATS and width > 0
    operator: Operator = standard("Fold", kind=_KINDS[kind])
    if fast:
        operator = standard(kind, keepdims=0)
    flat = op.viewed(x, (*rows, width))
    if shape == rows:
        op.step(operator, [flat], [op.output(Spec(rows, spec.dtype))])
        return
    made = op.temporary(Spec(rows, spec.dtype))
    op.step(operator, [flat], [made])
    op.view(made, shape)


@rule("Softmax", "LogSoftmax", since=1, newest=13)
def softmax(op: Operation) -> None:
    spec, rank = op.spec(0), len(op.spec(0).shape)
    plain = op.node.op_type == "Softmax"
    operator: Operator = Softmax() if plain else standard("LogSoftmax")
    if op.node.since_version >= 13:
        along(op, op.axis(-1, rank), operator)
        return
    # Before opset 13, over all axes from this one on, as one.
    axis = op.axis(1, rank)
    flat = (math.prod(spec.shape[:axis]), math.prod(spec.shape[axis:]))
    if flat == spec.shape:
        op.step(operator, [op.input(0)], [op.output(spec)])
        return
    made = op.temporary(Spec(flat, spec.dtype))
    op.step(operator, [op.viewed(op.input(0), flat)], [made])
    op.view(made, spec.shape)


@rule("CumSum", since=11, newest=14)
def cum_sum(op: Operation) -> None:
    axes = op.integers(1)
    op.require(axes is not None and len(axes) == 1, "its axis is no number")
    op.require(not op.is_guess(1), "its axis is known only when it runs")
    operator = standard(
        "CumSum",
        exclusive=int(op.attribute("exclusive", 0)),
        reverse=int(op.attribute("reverse", 0)),
    )
    along(op, op.from_front(int(axes[0] if axes else 0), len(op.spec(0).shape)), operator)
