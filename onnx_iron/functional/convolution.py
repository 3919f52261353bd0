"""Convolutions along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_iron.functional.linear import linear
from onnx_iron.functional.operand import handle_of, tensor_of
from onnx_iron.functional.shaping import cat, pad, split
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.conv_state import ConvState
from onnx_iron.graph.handle import Handle
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.copy import Copy


def causal_conv1d(
    x: Any,
    taps: Any,
    state: ConvState | None = None,
    *,
    bias: Any = None,
    activation: str | None = None,
    dilation: int = 1,
) -> Handle:
    """Return ``x`` ``(rows, channels)`` through a depth-wise causal filter of ``K`` taps, or each
    sequence of a batch ``(B, rows, channels)``.

    Each channel its own column of ``taps`` ``(K, channels)``: output row ``t`` is
    ``sum_k taps[k] * x[t - (K - 1 - k) * dilation]``. The ``(K - 1) * dilation`` rows before
    ``x``'s first row are read from ``state.read``, and those ending this call (counting those read)
    are written to ``state.write`` for the next call. Where ``x``'s rows are bounded per call
    (``x[:n]``), only the valid ones count; otherwise all do. Without a state the sequence begins
    and ends here, with zeros before it.

    Args:
        x: (rows, channels), or (B, rows, channels).
        taps: (K, channels).
        state: what is carried; of a batch ``conv_state(..., batch=B)``.
        bias: (channels,), added to every row.
        activation: None or ``"silu"``, applied last.
        dilation: how many rows apart the taps are.

    Returns:
        As ``x``, bounded as it.

    Raises:
        ValueError: shapes that do not fit, more bounded rows than the state's chunk, or a bound
            that is not the rows'.

    Example:
        >>> taps = np.ones((3, 8), np.float32)
        >>> F.causal_conv1d(x[:n], taps, conv, activation="silu").valid
        {0: Value(n)}
        >>> F.causal_conv1d(x, taps).shape
        (4, 8)
    """
    x = tensor_of("causal_conv1d", "x", x)
    taps = tensor_of("causal_conv1d", "taps", taps)
    if len(x.shape) not in (2, 3):
        raise ValueError(
            f"causal_conv1d(): x {tuple(x.shape)} is not (rows, channels) or (B, rows, channels)"
        )
    *batch, length, channels = x.shape
    bounds = dict(x.valid) if isinstance(x, Handle) else {}
    rows = bounds.pop(len(batch), None)
    if bounds:
        axis, bound = bounds.popitem()
        raise ValueError(
            f"causal_conv1d(): x {tuple(x.shape)} is bounded by {bound} along axis {axis}; only "
            f"its rows may be, along axis {len(batch)}: x[{':, ' * len(batch)}:{bound}]"
        )
    if rows is not None and state is not None and length > state.window.shape[1]:
        raise ValueError(
            f"causal_conv1d(): x has {length} rows, the state's window stages "
            f"{state.window.shape[1]}"
        )
    if state is not None and list(state.read.shape[:-2]) != batch:
        raise ValueError(
            f"causal_conv1d(): x is {tuple(x.shape)}, the state {tuple(state.read.shape)}; the "
            "state of a batch x (B, rows, channels) is conv_state(..., batch=B), that of one "
            "sequence has no batch"
        )
    before = np.zeros((*batch, (taps.shape[0] - 1) * dilation, channels), x.dtype)
    y, new_state = CausalConv1d.steps(
        x,
        taps,
        before if state is None else state.read,
        bias,
        rows,
        activation="none" if activation is None else activation,
        dilation=dilation,
    )
    if state is not None:
        Copy.step(new_state, state.write)
    return y


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Handle:
    """A convolution along the last axis, as torch's: one product of all windows with the weight.

    Args:
        x: (channels, length), or (batch, channels, length).
        weight: (out, channels / groups, K).
        bias: (out,).
        stride: entries from a window to the next.
        padding: zeros at both ends; "valid" for none, "same" for as many as keep the length.
        dilation: entries from a window's element to the next.
        groups: the channels, and the outputs, are so many groups that don't mix.

    Returns:
        (out, windows), or (batch, out, windows).

    Raises:
        ValueError: shapes that do not fit, "same" with a stride, or no window that fits.

    Example:
        >>> F.conv1d(x, np.ones((6, 4, 3), np.float32), stride=2, padding=1).shape
        (6, 4)
    """
    x, weight = handle_of("conv1d", "x", x), tensor_of("conv1d", "weight", weight)
    if x.ndim not in (2, 3) or len(weight.shape) != 3:
        raise ValueError(
            f"conv1d(): x is {x.shape} and weight {tuple(weight.shape)}; expected (channels, "
            "length) or (batch, channels, length), and (out, channels / groups, K)"
        )
    out, inner, size = weight.shape
    numbers = {"stride": stride, "dilation": dilation, "groups": groups}
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"conv1d(): {name} is {number}; it must be at least 1")
    if x.shape[-2] != inner * groups or out % groups:
        raise ValueError(
            f"conv1d(): x {x.shape} has {x.shape[-2]} channels, weight {tuple(weight.shape)} takes "
            f"{inner * groups} in {groups} groups and gives {out}"
        )
    span = (size - 1) * dilation
    if padding == "same" and stride != 1:
        raise ValueError(f"conv1d(): padding 'same' takes a stride of 1, not {stride}")
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ValueError(f"conv1d(): padding is {padding!r}; expected a number, 'same' or 'valid'")
    both = {"same": (span // 2, span - span // 2), "valid": (0, 0)}
    ends = both[padding] if isinstance(padding, str) else (padding, padding)
    if min(ends) < 0 or x.shape[-1] + sum(ends) <= span:
        raise ValueError(
            f"conv1d(): no window of {span + 1} entries fits into {x.shape[-1]} with padding {ends}"
        )
    # (batch, length, channels), as products have their rows.
    rows = pad(x.reshape(-1, *x.shape[-2:]), ends).permute(0, 2, 1)
    count = (rows.shape[1] - span - 1) // stride + 1
    if groups == x.shape[-2] == out and stride == 1:
        y = _depthwise(rows, weight, bias, dilation)
    else:
        windows = [
            rows[:, k * dilation : k * dilation + (count - 1) * stride + 1 : stride]
            for k in range(size)
        ]
        y = _grouped(windows, weight, bias, groups)
    return y.permute(0, 2, 1).reshape(*x.shape[:-2], out, count)


def _depthwise(rows: Handle, weight: Any, bias: Any, dilation: int) -> Handle:
    """Each channel by its own filter: that is the causal one, on rows that are padded already."""
    span = (weight.shape[2] - 1) * dilation
    taps = _permuted(weight, (2, 0, 1)).reshape(weight.shape[2], weight.shape[0])
    return causal_conv1d(rows, taps, bias=bias, dilation=dilation)[:, span:]


def _grouped(windows: list[Handle], weight: Any, bias: Any, groups: int) -> Handle:
    """The product of all windows, a group after the other."""
    out, inner, size = weight.shape
    batch, count = windows[0].shape[:2]
    # (groups, out / groups, K * inner), as the windows have their elements.
    filters = _permuted(weight, (0, 2, 1)).reshape(groups, out // groups, size * inner)
    by_group = [split(window, inner, 2) for window in windows]
    parts = []
    for group in range(groups):
        one = cat([parts_of[group] for parts_of in by_group], 2)
        y = linear(one.reshape(batch * count, size * inner), filters[group])
        parts.append(y.reshape(batch, count, out // groups))
    y = cat(parts, 2)
    return y if bias is None else y + tensor_of("conv1d", "bias", bias)


def _permuted(weight: Any, order: tuple[int, ...]) -> Any:
    """A weight with its axes in another order: an array's at once, another's when it runs."""
    array = as_array(weight)
    if array is None:
        return weight.permute(*order)
    return np.ascontiguousarray(array.transpose(order))
