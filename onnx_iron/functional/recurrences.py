"""Recurrences over rows, whose state a graph keeps from call to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx_iron.dtypes import FLOAT32
from onnx_iron.functional.activations import silu
from onnx_iron.functional.elementwise import tensor, where
from onnx_iron.functional.operand import handle_of, tensor_of
from onnx_iron.functional.shaping import stack
from onnx_iron.graph.handle import Handle, Tensor
from onnx_iron.graph.parts import State
from onnx_iron.graph.value import Value
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.linear_attention import LinearAttention
from onnx_iron.operators.selective_scan import SelectiveScan


def selective_scan(
    x: Any,
    dt: Any,
    A: Any,  # noqa: N803 - these are mamba_ssm's names, and the paper's
    B: Any,  # noqa: N803
    C: Any,  # noqa: N803
    state: State | None = None,
    *,
    D: Any = None,  # noqa: N803
    z: Any = None,
    dt_bias: Any = None,
    dt_softplus: bool = False,
) -> Handle:
    """Mamba's selective scan: each channel's state decays and takes in rows, by steps of its own.

    For every row ``h = exp(step * A) * h + step * x * B`` and ``y = h @ C + D * x``, in float32,
    ``step`` being ``dt + dt_bias``, through softplus where ``dt_softplus``. Where rows are bounded
    per call (``x[:n]``), only the valid ones change the state; any chunks of a sequence give the
    same bits. Gu and Dao, arXiv 2312.00752.

    Args:
        x: (rows, channels), or (batch, rows, channels).
        dt: as ``x``.
        A: float32 (channels, N): ``-exp(A_log)`` of a checkpoint.
        B: (rows, N), or (batch, rows, N).
        C: as ``B``.
        state: float32 (channels, N), or (batch, channels, N), read and then written. None: the
            sequence begins and ends here, from zeros.
        D: float32 (channels,).
        z: as ``x``; the result is multiplied by ``silu(z)``.
        dt_bias: float32 (channels,).
        dt_softplus: see above.

    Returns:
        As ``x``, bounded as it is.

    Raises:
        TypeError: operands of several dtypes, or a state or constant that is not float32.
        ValueError: shapes that do not fit, or operands that are bounded in several ways.

    Example:
        >>> A, rows = -np.ones((8, 2), np.float32), np.ones((4, 2), np.float32)
        >>> F.selective_scan(x[:n], x[:n], A, rows, rows, dt_softplus=True).valid
        {0: Value(n)}
    """
    x, dt, B, C = (  # noqa: N806
        handle_of("selective_scan", name, given)
        for name, given in (("x", x), ("dt", dt), ("B", B), ("C", C))
    )
    A = tensor_of("selective_scan", "A", A)  # noqa: N806
    y = _carried(
        SelectiveScan,
        state,
        (*x.shape[:-2], *A.shape),
        (x.ndim - 2, (x, dt, B, C)),
        {"x": x, "dt": dt, "a": A, "b": B, "c": C, "d": D, "dt_bias": dt_bias},
        dt_softplus=dt_softplus,
    )
    return y if z is None else y * silu(z)


def linear_attention(
    query: Any,
    key: Any,
    value: Any,
    state: State | None = None,
    *,
    decay: Any = None,
    beta: Any = None,
    scale: float | None = None,
) -> Handle:
    """Linear attention: a state (K, V) for each head takes in every row's key with its value.

    For every row ``S = exp(decay) * S``, then ``S + outer(key, beta * (value - key @ S))``, or
    ``S + outer(key, value)`` without ``beta``, and ``y = scale * query @ S``, in float32. Which of
    ``decay`` and ``beta`` are given makes it linear, gated linear attention, the delta rule or the
    gated delta rule. Where rows are bounded per call (``query[:n]``), only the valid ones change
    the state; any chunks of a sequence give the same bits.

    The delta rules want keys of length 1: ``F.rms_norm(k, K, eps=1e-6 / K) * K**-0.5``.

    Args:
        query: (rows, heads, K), or (batch, rows, heads, K).
        key: the same, with as many heads or a divisor of them: several queries read one state.
        value: (rows, heads, V) or (batch, rows, heads, V), with key's heads or a multiple of them:
            each key, and its query, is then for several values.
        state: float32 (heads, K, V) or (batch, heads, K, V), value's heads, read and then written.
            None: the sequence begins and ends here, from zeros.
        decay: (rows, heads), value's heads, or (rows, heads, K); in either dtype.
        beta: (rows, heads), value's heads, in either dtype.
        scale: 1 / sqrt(K) where not given.

    Returns:
        (rows, heads, V) or (batch, rows, heads, V), query's heads (value's where these are more).

    Raises:
        TypeError: operands of several dtypes, or a state that is not float32.
        ValueError: shapes that do not fit, or operands that are bounded in several ways.

    Example:
        >>> heads = x.reshape(4, 2, 4)
        >>> F.linear_attention(heads, heads, heads).shape
        (4, 2, 4)
    """
    query, key, value = (
        handle_of("linear_attention", name, given)
        for name, given in (("query", query), ("key", key), ("value", value))
    )
    if query.ndim not in (3, 4) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise ValueError(
            f"linear_attention(): query is {query.shape}, key {key.shape} and value "
            f"{value.shape}; expected (rows, heads, width), or (batch, rows, heads, width)"
        )
    if value.shape[-2] > key.shape[-2]:
        query, key = (_repeated(x, value.shape[-2] // key.shape[-2]) for x in (query, key))
    return _carried(
        LinearAttention,
        state,
        (*query.shape[:-3], *key.shape[-2:], value.shape[-1]),
        (query.ndim - 3, (query, key, value, decay, beta)),
        {"query": query, "key": key, "value": value, "decay": decay, "beta": beta},
        scale=scale,
    )


def gated_delta_rule(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    state: State | None = None,
    *,
    scale: float | None = None,
) -> Handle:
    """``linear_attention`` with a decay ``g`` and a rate ``beta``, as gated delta nets have it.

    Yang et al., arXiv 2412.06464; see :func:`linear_attention`, of which ``g`` is the ``decay``.

    Raises:
        As ``linear_attention``.

    Example:
        >>> heads, gates = x.reshape(4, 2, 4), np.zeros((4, 2), np.float32)
        >>> F.gated_delta_rule(heads, heads, heads, gates, gates + 1).shape
        (4, 2, 4)
    """
    return linear_attention(query, key, value, state, decay=g, beta=beta, scale=scale)


def scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any) -> tuple[Any, Any]:
    """A recurrence of your own over rows: ``carry, y = body(carry, x)`` for each row in turn.

    As ``jax.lax.scan``. Every row's steps are recorded, one after the other: a trace of T rows has
    T times the body's, so it is for short chunks and small bodies; ``selective_scan`` and
    ``linear_attention`` have kernels. Where rows are bounded per call (``xs[:n]``), only the valid
    ones change what is carried.

    Args:
        body: takes what is carried and a row of each of ``xs``, and returns what is carried on, of
            the same shape, and the row's result.
        carry: a handle, state, weight or array, or a tuple of them. To keep it from call to call,
            give a state and write what comes back into it: ``s[...], y = F.scan(body, s, x)``.
        xs: (rows, ...), or a tuple of such.

    Returns:
        What is carried in the end, as ``carry`` was given, and (rows, ...) results, bounded as xs,
        a tuple where the body returns one.

    Raises:
        ValueError: ``xs`` with no rows, of several numbers of rows, or bounded in several ways.

    Example:
        >>> def fading(h, x):
        ...     h = h * 0.5 + x
        ...     return h, h
        >>> F.scan(fading, np.zeros(8, np.float32), x)[1].shape
        (4, 8)
    """
    given = xs if isinstance(xs, tuple) else (xs,)
    rows_of = [handle_of("scan", "xs", x) for x in given]
    counts = {x.shape[0] if x.ndim else 0 for x in rows_of}
    if len(counts) != 1 or counts == {0}:
        raise ValueError(
            f"scan(): xs are {[x.shape for x in rows_of]}; expected one number of rows, at least 1"
        )
    rows = _rows("scan", 0, rows_of)
    single = not isinstance(carry, tuple)
    held = [handle_of("scan", "carry", c).copy() for c in ((carry,) if single else carry)]
    kept: list[tuple[Any, ...]] = []
    several = False
    for t in range(counts.pop()):
        entries = tuple(x[t].copy() for x in rows_of)
        following, y = body(
            held[0] if single else tuple(held), entries if isinstance(xs, tuple) else entries[0]
        )
        several = isinstance(y, tuple)
        kept.append(y if several else (y,))
        made = (following,) if single else following
        if rows is not None:
            valid = tensor(rows) > t
            made = tuple(where(valid, new, old) for new, old in zip(made, held, strict=True))
        held = list(made)
    ys = tuple(_bounded(stack(list(results)), rows) for results in zip(*kept, strict=True))
    return held[0] if single else tuple(held), ys if several else ys[0]


def _carried(
    operator: type[SelectiveScan | LinearAttention],
    state: State | None,
    shape: Sequence[int],
    bounded: tuple[int, Sequence[Any]],
    operands: dict[str, Any],
    **attributes: Any,
) -> Handle:
    """The operator's result; what it carries is read from the state and written to it."""
    before = np.zeros(tuple(shape), FLOAT32) if state is None else state
    rows = _rows(operator.name, *bounded)
    y, after = operator.steps(**operands, state=before, rows=rows, **attributes)
    if state is not None:
        Copy.step(after, state)
    return y


def _rows(name: str, axis: int, operands: Sequence[Any]) -> Value | None:
    """How many rows are valid, of operands of which some are bounded.

    Raises:
        ValueError: two numbers.
    """
    found = [x.valid[axis] for x in operands if isinstance(x, Handle) and axis in x.valid]
    if any(rows != found[0] for rows in found):
        raise ValueError(f"{name}: its operands are bounded by {' and '.join(map(str, found))}")
    return found[0] if found else None


def _repeated(x: Handle, times: int) -> Handle:
    """Each head so many times, one after the other."""
    return stack([x] * times, x.ndim - 1).flatten(x.ndim - 2, x.ndim - 1)


def _bounded(x: Tensor, rows: Value | None) -> Handle:
    return x[:] if rows is None else x[:rows]
