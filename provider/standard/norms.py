"""Standard operators that normalise channels: group, instance and batch normalisation."""

from __future__ import annotations

import math

import numpy as np

from onnx_iron.dtypes import FLOAT32, FLOATS, Spec
from onnx_iron.operators.arithmetic import Add, Div, Mul, Sub
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.rule import rounded, rule, widened


@rule("GroupNormalization", since=18, newest=21)
def group_normalization(op: Operation) -> None:
    """Since opset 21 scale and bias have an element for each channel, before for each group."""
    groups, stash = int(op.attribute("num_groups", 0)), op.attribute("stash_type", 1)
    op.require(stash == 1, f"stash_type is {stash}, the kernel computes in float32 (1)")
    channels = _channels(op)
    op.require(groups > 0 and channels % groups == 0, f"{channels} channels, {groups} groups")
    _by_groups(op, groups, channels if op.node.since_version >= 21 else groups)


@rule("InstanceNormalization", since=6, newest=22)
def instance_normalization(op: Operation) -> None:
    _by_groups(op, _channels(op), _channels(op))


def _channels(op: Operation) -> int:
    spec = op.spec(0)
    op.require(spec.dtype in FLOATS, f"its input is {spec.dtype.name}")
    op.require(len(spec.shape) >= 3, f"its input is {spec}, (batch, channels, ...) is known")
    return spec.shape[1]


def _by_groups(op: Operation, groups: int, factors: int) -> None:
    """Each group of channels is a row, normalised as one; then factors, each for its part."""
    spec = op.spec(0)
    batch, rest = spec.shape[0], math.prod(spec.shape[1:])
    for index in (1, 2):
        expected = Spec((factors,), spec.dtype)
        op.require(op.spec(index) == expected, f"input {index} is {op.spec(index)}, not {expected}")
    rows = Spec((batch, groups, rest // groups), FLOAT32)
    parts = Spec((batch, factors, rest // factors), FLOAT32)
    normed, scaled, shifted = op.temporary(rows), op.temporary(parts), op.temporary(parts)
    norm = LayerNorm(float(op.attribute("epsilon", 1e-5)))
    op.step(norm, [op.viewed(widened(op, op.input(0), spec), rows.shape)], [normed])
    scale, bias = (
        op.viewed(widened(op, op.input(index), op.spec(index)), (factors, 1)) for index in (1, 2)
    )
    op.step(Mul(), [op.viewed(normed, parts.shape), scale], [scaled])
    op.step(Add(), [scaled, bias], [shifted])
    rounded(op, shifted, spec)


@rule("BatchNormalization", since=9, newest=15)
def batch_normalization(op: Operation) -> None:
    spec, rank = op.spec(0), len(op.spec(0).shape)
    op.require(not op.attribute("training_mode", 0), "it is in training mode")
    op.require(op.output_count == 1, "means and variances are asked for")
    op.require(spec.dtype in FLOATS and rank >= 2, f"its input is {spec}")
    channel = Spec(spec.shape[1:2], spec.dtype)
    for index in range(1, 5):
        op.require(op.spec(index) == channel, f"input {index} is {op.spec(index)}, not {channel}")
    epsilon = op.literal(np.array(float(op.attribute("epsilon", 1e-5)), np.float32))
    small = Spec((*channel.shape, *[1] * (rank - 2)), FLOAT32)
    scale, bias, mean, variance = (
        op.viewed(widened(op, op.input(index), channel), small.shape) for index in range(1, 5)
    )
    moved, root, factor = (op.temporary(small) for _ in range(3))
    op.step(Add(), [variance, epsilon], [moved])
    op.step(standard("Sqrt", elementwise=True), [moved], [root])
    op.step(Div(), [scale, root], [factor])
    wide = Spec(spec.shape, FLOAT32)
    centred, scaled, shifted = (op.temporary(wide) for _ in range(3))
    op.step(Sub(), [widened(op, op.input(0), spec), mean], [centred])
    op.step(Mul(), [centred, factor], [scaled])
    op.step(Add(), [scaled, bias], [shifted])
    rounded(op, shifted, spec)
