"""Operators with a state that a sequence carries on: ONNX's, and com.microsoft's of one name."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import FLOAT32, FLOATS, Shape, Spec
from onnx_iron.operators.arithmetic import Mul
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.linear_attention import RULES, LinearAttention
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.standard.microsoft import DOMAIN
from onnx_iron.provider.standard.rule import rule


@rule("CausalConvWithState", since=27, newest=27)
def causal_conv_with_state(op: Operation) -> None:
    _causal_conv(op, channels_last=False)


@rule("CausalConvWithState", since=1, newest=1, domain=DOMAIN)
def causal_conv_with_state_of_microsoft(op: Operation) -> None:
    plain = {
        **{"ndim": 1, "state_window": 0, "state_update_capacity": 0, "state_length": 0},
        **{"state_channels_last": -1, "input_channel_offset": 0, "input_channels": 0},
    }
    for name, value in plain.items():
        given = op.attribute(name, value)
        op.require(given == value, f"{name} is {given}, the kernel has {value}")
    _causal_conv(op, channels_last=bool(op.attribute("channels_last", 0)))


def _causal_conv(op: Operation, *, channels_last: bool) -> None:
    spec, weight = op.spec(0), op.spec(1)
    op.require(spec.dtype in FLOATS and len(spec.shape) == 3, f"its input is {spec}")
    batch, length, channels = spec.shape if channels_last else _swapped(spec.shape)
    fits = len(weight.shape) == 3 and weight.shape[:2] == (channels, 1) and weight.shape[2] > 0
    op.require(fits, f"weight is {weight} for {channels} channels")
    op.require(weight.dtype == spec.dtype, f"operands are {spec} and {weight}")
    activation = op.attribute("activation", "none")
    known = {"none": "none", "silu": "silu", "swish": "silu"}
    op.require(activation in known, f"activation is {activation!r}")
    taps, dilation = weight.shape[2], int(op.attribute("dilation", 1))
    op.require(dilation >= 1, f"dilation is {dilation}")
    kept = (batch, (taps - 1) * dilation, channels)

    def rows_first(name: str, shape: Shape) -> str:
        return name if channels_last else _transposed(op, name, shape, (0, 2, 1))

    filters = op.viewed(op.input(1), (channels, taps))
    by_tap = _transposed(op, filters, (taps, channels), (1, 0))
    bias = None
    if op.has(2):
        op.require(op.spec(2) == Spec((channels,), spec.dtype), f"bias is {op.spec(2)}")
        bias = op.input(2)
    if op.has(3):
        wanted = kept if channels_last else _swapped(kept)
        op.require(op.spec(3) == Spec(wanted, spec.dtype), f"past_state is {op.spec(3)}")
        state = rows_first(op.input(3), kept)
    else:
        state = op.literal(np.zeros(tuple(map(int, kept)), spec.dtype))
    rows = (batch, length, channels)
    x = rows_first(op.input(0), rows)
    operator = CausalConv1d(activation=known[activation], dilation=dilation)
    if channels_last:
        outputs = [op.output(spec), op.output(Spec(kept, spec.dtype), 1)]
        op.step(operator, [x, by_tap, state, bias], outputs)
        return
    made = [op.temporary(Spec(shape, spec.dtype)) for shape in (rows, kept)]
    op.step(operator, [x, by_tap, state, bias], made)
    for index, (name, shape) in enumerate(zip(made, (rows, kept), strict=True)):
        output = op.output(Spec(_swapped(shape), spec.dtype), index)
        op.step(standard("Transpose", moves=True, perm=[0, 2, 1]), [name], [output])


def _swapped(shape: Shape) -> Shape:
    """(B, C, T) of (B, T, C), or back."""
    return (shape[0], shape[2], shape[1])


def _transposed(op: Operation, name: str, shape: Shape, perm: tuple[int, ...]) -> str:
    """A value with its axes in another order, of ``shape`` then."""
    made = op.temporary(Spec(shape, op.spec(0).dtype))
    op.step(standard("Transpose", moves=True, perm=list(perm)), [name], [made])
    return made


@rule("LinearAttention", since=27, newest=27)
@rule("LinearAttention", since=1, newest=1, domain=DOMAIN)
def linear_attention(op: Operation) -> None:
    window = op.attribute("state_window", 0)
    op.require(window == 0, f"state_window is {window}, the kernel has 0")
    specs = [op.spec(index) for index in range(3)]
    dtype = specs[0].dtype
    same = all(len(spec.shape) == 3 and spec.dtype == dtype for spec in specs)
    op.require(dtype in FLOATS and same, f"operands are {', '.join(map(str, specs))}")
    queries, heads = (int(op.attribute(f"{n}_num_heads", 0)) for n in ("q", "kv"))
    grouped = heads > 0 and queries > 0 and queries % heads == 0
    op.require(grouped, f"q_num_heads is {queries}, kv_num_heads {heads}")
    counts = (queries, heads, heads)
    whole = all(s.shape[2] % n == 0 for s, n in zip(specs, counts, strict=True))
    op.require(whole, f"{', '.join(map(str, specs))} are no whole heads of {counts}")
    batch, length, _ = specs[0].shape
    width, value_width = specs[0].shape[2] // queries, specs[2].shape[2] // heads
    op.require(width > 0, f"query is {specs[0]}")
    per_head = (batch, length, heads)
    query, key, value = (
        op.viewed(op.input(index), (*spec.shape[:2], count, spec.shape[2] // count))
        for index, (spec, count) in enumerate(zip(specs, counts, strict=True))
    )
    decay = _decay(op, per_head, width)
    beta = _beta(op, per_head)
    name = op.attribute("update_rule", "gated_delta")
    given = decay is not None, beta is not None
    op.require(RULES[given] == name, f"update_rule is {name!r} with decay, beta: {given}")
    kept = Spec((batch, heads, width, value_width), FLOAT32)
    narrow = op.spec(3).dtype if op.has(3) else dtype
    if op.has(3):
        op.require(op.spec(3) == Spec(kept.shape, narrow), f"past_state is {op.spec(3)}")
        op.require(narrow in FLOATS, f"past_state is {op.spec(3)}")
        state = op.input(3)
        if narrow != FLOAT32:
            state = op.temporary(kept)
            op.step(_cast(), [op.input(3)], [state])
    else:
        state = op.literal(np.zeros(tuple(map(int, kept.shape)), np.float32))
    scale = float(op.attribute("scale", 0.0))
    y = op.temporary(Spec((batch, length, queries, value_width), dtype))
    after = op.output(kept, 1) if narrow == FLOAT32 else op.temporary(kept)
    operator = LinearAttention(scale=scale or None)
    op.step(operator, [query, key, value, state, decay, beta], [y, after])
    if narrow != FLOAT32:
        op.step(_cast(), [after], [op.output(Spec(kept.shape, narrow), 1)])
    op.view(y, (batch, length, queries * value_width))


def _decay(op: Operation, per_head: Shape, width: int) -> str | None:
    if not op.has(4):
        return None
    shape = op.spec(4).shape
    known = (per_head, (*per_head[:2], per_head[2] * width))
    op.require(op.spec(4).dtype == op.spec(0).dtype and shape in known, f"decay is {op.spec(4)}")
    return op.input(4) if shape == per_head else op.viewed(op.input(4), (*per_head, width))


def _beta(op: Operation, per_head: Shape) -> str | None:
    if not op.has(5):
        return None
    spec = op.spec(5)
    known = (per_head, (*per_head[:2], 1))
    op.require(spec.dtype == op.spec(0).dtype and spec.shape in known, f"beta is {spec}")
    if spec.shape == per_head:
        return op.input(5)
    # One rate for all heads, for each of them.
    made = op.temporary(Spec(per_head, spec.dtype))
    op.step(Mul(), [op.input(5), op.literal(np.ones((1, 1, per_head[2]), spec.dtype))], [made])
    return made


def _cast() -> Operator:
    return standard("Cast", moves=True)
