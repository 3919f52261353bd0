"""Functions for a graph's body, under torch.nn.functional's names.

Each records the operator steps that compute it and returns their handle. Weights are a
checkpoint's ``(out, in)``, as ``torch.nn.Linear`` stores them. A handle's own ``+ - * /`` are
steps too, and ``@`` of one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.graph.arrays import as_array
from onnx_iron.graph.context import current_trace
from onnx_iron.graph.handle import Handle, State, Tensor, state
from onnx_iron.graph.value import Value
from onnx_iron.operators.arithmetic import Add
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.causal_conv1d import CausalConv1d
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.embedding import Embedding
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.gemm import GEMM, Epilogue, Precision, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.softmax import Softmax


@dataclass
class ConvState:
    """What a short causal conv carries between calls.

    Attributes:
        read: the K - 1 rows before a call's first.
        write: where the K - 1 rows ending it go; the same state as ``read``, or another.
        window: scratch (2, chunk, channels), where a call's rows are staged after those before.
        tail: scratch (K - 1, channels), where the rows to write are staged.
    """

    read: Tensor
    write: Tensor
    window: State
    tail: State

    def named_parts(self) -> Iterator[tuple[str, Any]]:
        """A state both read and written is named by this object's own path."""
        same = self.read is self.write
        yield ("" if same else "read"), self.read
        yield "write", self.write
        yield "window", self.window
        yield "tail", self.tail


def conv_state(kernel_size: int, channels: int, chunk: int = 1, dtype: Any = BFLOAT16) -> ConvState:
    """A ConvState that reads and writes one state.

    Args:
        kernel_size: K, the number of taps.
        channels: the width of the rows.
        chunk: the most rows that a call filters.
        dtype: float32 or bfloat16, as the rows filtered.

    Raises:
        ValueError: ``kernel_size``, ``channels`` or ``chunk`` below 1.
    """
    for name, number in (("kernel_size", kernel_size), ("channels", channels), ("chunk", chunk)):
        if number < 1:
            raise ValueError(f"conv_state(): {name} is {number}; it must be at least 1")
    carried = state((kernel_size - 1, channels), dtype)
    return ConvState(
        read=carried,
        write=carried,
        window=state((2, max(chunk, kernel_size - 1), channels), dtype, scratch=True),
        tail=state((kernel_size - 1, channels), dtype, scratch=True),
    )


def linear(
    x: Handle | State, weight: Any, bias: Any = None, *, precision: Precision, **gemv: int
) -> Handle:
    """Return ``x @ weight.T``, plus ``bias`` on every row if given.

    One row runs on GEMV, which always rounds once in float32 regardless of ``precision``; several
    rows run on ProjectionGEMM at ``precision``, or on GEMM at ``Precision.HIGHEST``. Nothing that
    is here reads a precision or a tunable: every product is summed in float32 and rounded once.

    Args:
        x: (in,) or (rows, in).
        weight: (out, in), as ``torch.nn.Linear`` stores it.
        bias: (out,).
        precision: how exact the product of several rows is at the least; kept in the graph for a
            backend to read, and read by none yet.
        gemv: GEMV's tunables, for one row; kept and read as ``precision``.

    Returns:
        (out,) or (rows, out).

    Raises:
        ValueError: ``x`` of another rank, or GEMV tunables for several rows.
    """
    x = _tensor("linear", "x", x)
    bias = None if bias is None else _tensor("linear", "bias", bias)
    if len(x.shape) not in (1, 2):
        raise ValueError(f"linear(): x {tuple(x.shape)} is not (in,) or (rows, in)")
    if precision not in list(Precision):
        raise ValueError(
            f"linear(): precision is {precision!r}; expected one of {[str(p) for p in Precision]}"
        )
    if len(x.shape) == 1 or x.shape[0] == 1:
        y = GEMV.step(weight, x, **gemv)
    elif gemv:
        raise ValueError(f"linear(): {x.shape[0]} rows take no GEMV {sorted(gemv)}")
    elif precision == Precision.HIGHEST:
        y = GEMM.step(x, weight, b_col_maj=True, precision=precision)
    else:
        y = ProjectionGEMM.step(
            x, weight, b_col_maj=True, epilogue_modes=(Epilogue.NONE,), precision=precision
        )
    if bias is None:
        return y
    if tuple(bias.shape) != y.shape[-1:]:
        raise ValueError(
            f"linear(): bias is {tuple(bias.shape)}; weight is {tuple(weight.shape)}, so it must "
            f"be {y.shape[-1:]}"
        )
    # A row added to every row, also for GEMV's one-dimensional output.
    rows = math.prod(y.shape) // bias.shape[0]
    return Add.step(y.reshape(rows, bias.shape[0]), bias).reshape(y.shape)


def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Handle:
    """``x`` over the RMS of its last axis, times ``weight`` if given.

    ``eps`` None is the machine epsilon of ``x``'s dtype, as torch documents it; torch 2.13 itself
    takes float32's for bfloat16.

    Raises:
        ValueError: ``normalized_shape`` is not ``x``'s last axis.
    """
    x = _last_axis("rms_norm", x, normalized_shape)
    if eps is None:
        eps = float(ml_dtypes.finfo(x.dtype).eps)  # type: ignore[no-untyped-call]
    return RMSNorm.step(x, weight=weight, epsilon=float(eps))


def layer_norm(
    x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Handle:
    """Layer-normalize ``x`` over its last axis, as torch's ``layer_norm``.

    Subtract the mean, divide by the standard deviation (``eps`` under the root), then multiply by
    ``weight`` and add ``bias`` when given.

    Raises:
        ValueError: ``normalized_shape`` is not ``x``'s last axis.
    """
    x = _last_axis("layer_norm", x, normalized_shape)
    y = LayerNorm.step(x, weight=weight, epsilon=float(eps))
    return y if bias is None else y + bias


def silu(x: Any) -> Handle:
    """Apply SiLU, ``x * sigmoid(x)``, as torch's."""
    return SiLU.step(x)


def gelu(x: Any, approximate: str = "none") -> Handle:
    """Apply GELU, exact by default as torch's.

    Or by its tanh approximation (``approximate="tanh"``, ``gelu_pytorch_tanh``).

    Raises:
        ValueError: ``approximate`` is neither.
    """
    return GELU.step(x, approximate=approximate)


def softmax(x: Any, dim: int = -1) -> Handle:
    """Softmax over the last axis, as torch's with ``dim=-1``.

    Raises:
        ValueError: ``dim`` is another axis.
    """
    x = _tensor("softmax", "x", x)
    if dim not in (-1, len(x.shape) - 1):
        raise ValueError(f"softmax(): dim is {dim}; x {tuple(x.shape)} takes -1, its last axis")
    return Softmax.step(x)


def rope(x: Any, angles: Any, *, interleaved: bool = False) -> Handle:
    """``x`` ``(rows, head_dim)`` turned by RoPE, a row of ``angles`` per row.

    Args:
        x: (rows, head_dim).
        angles: (n, head_dim), n dividing rows: (cos0, sin0, cos1, sin1, ...), each row for
            rows / n consecutive rows; x's dtype or float32.
        interleaved: turn the pairs (2i, 2i + 1) rather than (i, i + head_dim / 2).
    """
    return RoPE.step(x, angles, interleaved=interleaved)


def causal_conv1d(
    x: Any, taps: Any, state: ConvState, *, bias: Any = None, activation: str | None = None
) -> Handle:
    """Return ``x`` ``(rows, channels)`` through a depth-wise causal filter of ``K`` taps.

    Each channel its own column of ``taps`` ``(K, channels)``: output row ``t`` is
    ``sum_k taps[k] * x[t - K + 1 + k]``. The ``K - 1`` rows before ``x``'s first row are read from
    ``state.read``, and the ``K - 1`` rows ending this call (counting those read) are written to
    ``state.write`` for the next call. When ``x``'s rows are bounded per call (``x[:n]``), the call
    is a prompt chunk of at most ``chunk`` rows; otherwise ``x`` is one row, a decode step.

    Args:
        x: (rows, channels).
        taps: (K, channels).
        state: what is carried.
        bias: (channels,), added to every row.
        activation: None or ``"silu"``, applied last.

    Returns:
        (rows, channels), bounded as ``x``.

    Raises:
        ValueError: several rows without a bound, more than the state's chunk, or another shape.
    """
    x = _tensor("causal_conv1d", "x", x)
    rows = x.valid.get(0) if isinstance(x, Handle) else None
    if len(x.shape) != 2:
        raise ValueError(f"causal_conv1d(): x {tuple(x.shape)} is not (rows, channels)")
    if rows is None and x.shape[0] != 1:
        raise ValueError(
            f"causal_conv1d(): x has {x.shape[0]} rows; bound them per call, x[:n], for a prompt "
            "chunk, or pass one row for a decode step"
        )
    if x.shape[0] > state.window.shape[1]:
        raise ValueError(
            f"causal_conv1d(): x has {x.shape[0]} rows, the state's window stages "
            f"{state.window.shape[1]}"
        )
    y, new_state = CausalConv1d.steps(
        x, taps, state.read, bias, rows, activation="none" if activation is None else activation
    )
    Copy.step(new_state, state.write)
    return y


def embedding(input: Any, weight: Any) -> Handle:  # torch's name for the ids
    """For each id of ``input`` (int32 or int64, any shape) its row of ``weight``
    ``(entries, width)``; the ids' shape, then width. An id outside is an error at the call.
    """
    return Embedding.step(weight, input)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    position: Value | int | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Handle:
    """Attention as torch's, rows first as a cache stores them, over a cache of static length.

    Args:
        query: (rows, heads, head_dim); its rows may be bounded.
        key: (entries, kv_heads, head_dim); where bounded (``keys[:n]``) the rest is not seen.
        value: (entries, kv_heads, value_dim).
        position: the entry that the first query row stands at; row t sees the entries up to
            position + t. Needs ``is_causal``.
        is_causal: no row sees an entry after its own.
        scale: 1 / sqrt(head_dim) by default.
        enable_gqa: heads may be a multiple of kv_heads, each key head serving so many in a row.

    Returns:
        (rows, heads, value_dim).

    Raises:
        ValueError: shapes that do not fit, a position without ``is_causal``, or heads that
            differ without ``enable_gqa``.
    """
    query, key, value = (
        _tensor("scaled_dot_product_attention", name, x)
        for name, x in (("query", query), ("key", key), ("value", value))
    )
    if position is not None and not is_causal:
        raise ValueError(
            "scaled_dot_product_attention(): position says where causal rows stand; pass "
            "is_causal=True with it"
        )
    if (
        not enable_gqa
        and len(query.shape) == len(key.shape) == 3
        and query.shape[1] != key.shape[1]
    ):
        raise ValueError(
            f"scaled_dot_product_attention(): {query.shape[1]} query heads, {key.shape[1]} key "
            "heads; pass enable_gqa=True where each key head serves several"
        )
    bounds = [h.valid.get(0) if isinstance(h, Handle) else None for h in (key, value)]
    if None not in bounds and bounds[0] != bounds[1]:
        raise ValueError(
            f"scaled_dot_product_attention(): key is bounded by {bounds[0]}, value by {bounds[1]}"
        )
    return Attention.step(
        query,
        key,
        value,
        position,
        bounds[0] if bounds[0] is not None else bounds[1],
        is_causal=is_causal,
        scale=scale,
    )


def _tensor(function: str, name: str, value: Any) -> Any:
    """An operand that has a shape and a dtype: a handle, a state, a weight or an array.

    Raises:
        TypeError: something else.
    """
    if isinstance(value, Tensor | np.ndarray):
        return value
    if as_array(value) is None:
        raise TypeError(
            f"{function}(): {name} is {value!r}, which is no operand; use a handle, a state, a "
            "weight or an array"
        )
    return current_trace(f"{function}()").lift(value)


def _last_axis(function: str, x: Any, normalized_shape: Any) -> Any:
    x = _tensor(function, "x", x)
    sizes = (
        (int(normalized_shape),)
        if hasattr(normalized_shape, "__index__")
        else tuple(normalized_shape)
    )
    if sizes != tuple(x.shape[-1:]):
        raise ValueError(
            f"{function}(): normalized_shape is {sizes}; x is {tuple(x.shape)}, and only its last "
            f"axis {tuple(x.shape[-1:])} is normalized"
        )
    return x


__all__ = [
    "ConvState",
    "Epilogue",
    "Precision",
    "causal_conv1d",
    "conv_state",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
]
