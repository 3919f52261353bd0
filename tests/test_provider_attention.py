"""Attention as others export it: ONNX's, and com.microsoft's, against onnxruntime's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from other_nodes import Array, Other, assert_bfloat16_is_its_float32_rounded, tables
from provider_models import iron, rand, stock

import onnx_iron

B, H, G, T, S, P, D = 2, 4, 2, 3, 7, 4, 16
YKV = ("y", "keys", "values")


def heads(count: int, rows: int, width: int = D, seed: int = 0, batch: int = B) -> Array:
    """(B, H, T, D)."""
    return rand(batch, count, rows, width, seed=seed)


def flat(x: Array) -> Array:
    """(B, T, H * D) of the same."""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def integers(*values: int, dtype: Any = np.int32) -> Array:
    return np.array(values, dtype)


def drawn(*shape: int, seed: int = 7) -> Array:
    return rand(*shape, seed=seed) > 0


Q, K, V = heads(H, T), heads(G, S, seed=1), heads(G, S, seed=2)
PK, PV = heads(G, P, seed=3), heads(G, P, seed=4)
EMPTY = heads(G, 0)
HIDING = np.where(drawn(T, S), rand(T, S), -np.inf).astype(np.float32)
HIDING[1] = -np.inf


def onnx(
    *inputs: Array | None, outputs: tuple[str, ...] = ("y",), opset: int = 23, **how: Any
) -> Other:
    return Other("Attention", inputs, outputs, how, "", opset=opset)


FLAT = {"q_num_heads": H, "kv_num_heads": G}
ONNX = [
    onnx(Q, K, V),
    onnx(Q, K, heads(G, S, 24, 2), softcap=1.5, scale=0.3),
    onnx(Q, K, V, is_causal=1),
    onnx(heads(H, S), K, V, is_causal=1),
    onnx(Q, heads(H, S, seed=1), heads(H, S, seed=2), is_causal=1),
    onnx(heads(H, S), K, V, None, PK, PV, outputs=YKV, is_causal=1),
    onnx(heads(H, 1), K[:, :, :1], V[:, :, :1], None, PK, PV, outputs=YKV, is_causal=1),
    onnx(Q, K, V, None, PK, PV, outputs=YKV),
    onnx(Q, K, V, None, EMPTY, EMPTY, outputs=YKV),
    onnx(Q, K, V, outputs=YKV),
    onnx(Q, K, V, outputs=("y", "", "values")),
    *(
        onnx(Q, K, V, drawn(*shape), **how)
        for shape in ((T, S), (1, T, S), (H, T, S), (B, 1, T, S), (B, H, T, S))
        for how in ({}, {"is_causal": 1, "softcap": 2.0})
    ),
    onnx(Q, K, V, np.zeros((T, S), bool)),
    onnx(Q, K, V, HIDING),
    onnx(Q, K, V, rand(B, 1, T, S, seed=8), softcap=1.0),
    onnx(Q, K, V, rand(T, S + P, seed=8), PK, PV, outputs=YKV),
    onnx(flat(Q), flat(K), flat(V), **FLAT),
    onnx(flat(Q), flat(K), flat(V), drawn(T, S), outputs=YKV, is_causal=1, **FLAT),
    onnx(flat(Q), flat(K), flat(V), rand(1, H, T, S + P), PK, PV, outputs=YKV, **FLAT),
    onnx(
        rand(1, 200, H * D), flat(rand(1, G, 200, D)), flat(rand(1, G, 200, D)), is_causal=1, **FLAT
    ),
    *(
        onnx(Q, K, V, None, None, None, integers(*lengths, dtype=np.int64), opset=24, **how)
        for lengths in ((4, 6), (S, T), (2, 1), (0, 3))
        for how in ({}, {"is_causal": 1})
    ),
    onnx(Q, K, V, drawn(1, S), opset=25),
    onnx(heads(H, S), K, V, None, PK, PV, opset=25, is_causal=1, left_window_size=2),
    onnx(heads(H, S), K, V, opset=25, is_causal=1, left_window_size=0),
]


def scatter(past: Array, update: Array, *more: Array, **how: Any) -> Other:
    return Other("TensorScatter", (past, update, *more), ("y",), how, "", opset=24)


SCATTERED = [
    scatter(heads(G, S), heads(G, 2, seed=1), integers(0, 5, dtype=np.int64)),
    scatter(heads(G, S), heads(G, 2, seed=1)),
    scatter(rand(B, S, D), rand(B, 2, D, seed=1), integers(1, 3, dtype=np.int64), axis=1),
    scatter(rand(B, 3, D), rand(B, 3, 5, seed=1), integers(1, 11, dtype=np.int64), axis=-1),
    scatter(heads(G, S), heads(G, 3, seed=1), integers(6, 5, dtype=np.int64), mode="circular"),
]


def many(*inputs: Array | None, outputs: tuple[str, ...] = ("y",), **how: Any) -> Other:
    return Other("MultiHeadAttention", inputs, outputs, {"num_heads": H, **how})


MK, MV = heads(H, S, seed=1), heads(H, S, seed=2)
MQ = heads(H, S)
MPK, MPV = heads(H, P, seed=3), heads(H, P, seed=4)
SEEN = np.array([[1, 0, 1, 1, 0, 7, -2], [1] * 7], np.int32)
MANY = [
    many(flat(Q), flat(MK), flat(MV)),
    many(flat(Q), MK, MV),
    many(flat(Q), MK, MV, outputs=YKV),
    many(flat(Q), flat(MK), flat(heads(H, S, 24, 2)), outputs=YKV, scale=-0.3),
    many(flat(Q), flat(MK), flat(MV), rand(3 * H * D, seed=5)),
    many(flat(Q), flat(MK), flat(heads(H, S, 24, 2)), rand(2 * H * D + H * 24, seed=5)),
    many(flat(MQ), flat(MK), flat(MV), unidirectional=1),
    many(flat(MQ), flat(MK), flat(MV), None, None, None, MPK, MPV, outputs=YKV, unidirectional=1),
    many(flat(Q), flat(MK), flat(MV), None, None, None, MPK, MPV, outputs=YKV),
    many(flat(Q), flat(MK), flat(MV), None, None, None, heads(H, 0), heads(H, 0), outputs=YKV),
    *(
        many(flat(Q), flat(MK), flat(MV), None, None, rand(*shape, seed=6))
        for shape in ((B, H, T, S), (1, H, T, S), (B, 1, T, S), (1, 1, T, S))
    ),
    many(flat(Q), flat(MK), flat(MV), None, None, np.broadcast_to(HIDING, (1, 1, T, S)).copy()),
    many(flat(Q), flat(MK), flat(MV), None, SEEN),
    many(flat(Q), flat(MK), flat(MV), None, SEEN, mask_filter_value=-3.0),
    many(flat(Q), flat(MK), flat(MV), None, SEEN, rand(B, H, T, S, seed=6)),
    many(flat(Q), flat(MK), flat(MV), None, drawn(B, T, S).astype(np.int32)),
    many(flat(Q), flat(MK), flat(MV), None, drawn(B, S + P).astype(np.int32), None, MPK, MPV,
         outputs=YKV),
    many(flat(MQ), flat(MK), flat(MV), None, SEEN, unidirectional=1),
    many(rand(1, 150, H * D), rand(1, 300, H * D, seed=1), rand(1, 300, H * D, seed=2)),
]  # fmt: skip


def grouped(
    rows: int,
    past: int | None,
    lengths: tuple[int, ...],
    *more: Array | None,
    total: int | None = None,
    packed: bool = False,
    **how: Any,
) -> Other:
    """New rows after a past with room for so many entries; each sequence then has its length."""
    batch = len(lengths)
    q, k, v = (flat(heads(n, rows, seed=i, batch=batch)) for i, n in enumerate((H, G, G)))
    projected = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    pasts = [None if past is None else heads(G, past, seed=i, batch=batch) for i in (3, 4)]
    longest = integers(max(lengths) if total is None else total)
    inputs = (*projected, *pasts, integers(*lengths) - 1, longest, *more)
    how = {"num_heads": H, "kv_num_heads": G, **how}
    return Other("GroupQueryAttention", inputs, YKV, how, constants=(6,))


ROTARY = tables(32, D // 2)
GROUPED = [
    grouped(5, None, (5,)),
    grouped(5, 0, (5,)),
    grouped(5, 12, (5,)),
    grouped(1, 4, (5,)),
    grouped(1, 12, (5,)),
    grouped(1, 12, (12,)),
    grouped(5, 4, (9,)),
    grouped(5, 12, (9,)),
    grouped(1, 6, (7, 4)),
    grouped(1, 12, (7, 4)),
    grouped(1, 6, (7, 7)),
    grouped(5, None, (5, 5)),
    grouped(5, None, (5,), packed=True),
    grouped(1, 12, (9,), packed=True, softcap=1.5),
    grouped(5, 12, (9,), scale=0.7, softcap=1.5),
    *(grouped(5, 12, (9,), local_window_size=window) for window in (-1, 1, 3, 20)),
    *(
        grouped(rows, past, (length,), *ROTARY, do_rotary=1, rotary_interleaved=interleaved)
        for rows, past, length in ((5, None, 5), (1, 4, 5), (1, 12, 8), (5, 12, 9))
        for interleaved in (0, 1)
    ),
    grouped(1, 12, (7, 4), *ROTARY, do_rotary=1, packed=True),
    grouped(5, None, (5,), *ROTARY),
    grouped(5, None, (5,), None, None, None, rand(1, H, 5, 5, seed=9), softcap=1.0),
    grouped(5, None, (5,), None, None, None, None, rand(H, seed=9)),
    grouped(5, None, (5,), smooth_softmax=1),
    grouped(130, 200, (180,)),
]

CASES = [*ONNX, *SCATTERED, *MANY, *GROUPED]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_gives_what_onnxruntime_gives(case: Other) -> None:
    serialized, given = case.model(np.float32), case.given(np.float32)
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    names = [name for name in case.outputs if name]
    for name, ours, theirs in zip(
        names, session.run(None, given), stock(serialized).run(None, given), strict=True
    ):
        assert ours.shape == theirs.shape
        if name == "y" and case.op != "TensorScatter":
            # A filter of -10000 leaves three digits of what it is added to.
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=4e-6)
        else:  # a cache is moved, and turned by products rounded once or twice
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", [c for c in CASES if c.opset < 25], ids=str)
def test_in_bfloat16_attention_is_its_float32_rounded(case: Other) -> None:
    assert_bfloat16_is_its_float32_rounded(case)
