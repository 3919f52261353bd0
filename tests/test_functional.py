"""The functions of a body and the arithmetic of handles, against torch's, by the reference run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from compare import assert_close, assert_same_bits
from networks import Network, numbered, random
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from onnx_iron import Handle, Precision, Value, Weight, state
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, FLOATS, Array

dtypes = pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in FLOATS])


def ran(body: Callable[..., Any], *arrays: Array, values: Any = None, **parts: Any) -> Any:
    """What a body gives on arrays."""
    return Network(body, **parts).reference(*arrays, **(values or {}))


def in_torch(array: Any) -> torch.Tensor:
    """An array's elements in float32, as every step computes."""
    return torch.from_numpy(np.array(array, np.float32))


def rounded(tensor: torch.Tensor, dtype: Any) -> Array:
    """torch's float32 result, rounded once."""
    return np.asarray(tensor.detach().numpy().astype(dtype))


def check(result: Array, expected: torch.Tensor, dtype: Any, *, of_largest: float = 2**-21) -> None:
    """Hold a result to torch's in float32."""
    ulp, reason = 4, "sums are in another order, exp and erf are other approximations"
    if dtype == BFLOAT16:
        ulp, reason = 1, "float32 values near a rounding boundary fall to either side of it"
    wanted = rounded(expected, dtype)
    assert_close(result, wanted, ulp=ulp, of_largest=of_largest, reason=reason)


# -- linear ---------------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize("shape", [(64,), (1, 64), (7, 64)])
@pytest.mark.parametrize("precision", list(Precision))
def test_linear_equals_torch_s(shape: tuple[int, ...], precision: Precision, dtype: Any) -> None:
    x, w = random(*shape, dtype=dtype), random(48, 64, dtype=dtype, seed=1)
    b = random(48, dtype=dtype, seed=2)
    plain = ran(lambda self, x: F.linear(x, w, precision=precision), x)
    check(plain, TF.linear(in_torch(x), in_torch(w)), dtype)
    # The bias is a step of its own: it is added to the rounded product.
    result = ran(lambda self, x: F.linear(x, w, b, precision=precision), x)
    check(result, in_torch(plain) + in_torch(b), dtype)


def test_linear_takes_a_state_for_its_input() -> None:
    w, x = random(5, 8), random(3, 8, seed=1)

    def body(self: Any, x: Handle) -> Handle:
        self.kept[...] = x
        return F.linear(self.kept, w, precision=Precision.HIGHEST)

    result = ran(body, x, kept=state((3, 8), FLOAT32))
    check(result, TF.linear(in_torch(x), in_torch(w)), FLOAT32)


# -- norms ----------------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize("shape", [(64,), (5, 33), (2, 3, 64)])
@pytest.mark.parametrize("eps", [None, 1e-5, 1e-2])
def test_rms_norm_equals_torch_s(shape: tuple[int, ...], eps: float | None, dtype: Any) -> None:
    x, width = random(*shape, dtype=dtype, scale=0.1), shape[-1:]
    # torch's own default is the epsilon of the dtype that it is given, so ours is named here.
    given = float(ml_dtypes.finfo(dtype).eps) if eps is None else eps
    for normalized_shape in (width, list(width), width[0]):
        result = ran(lambda self, x: F.rms_norm(x, self.n, eps=eps), x, n=normalized_shape)
        check(result, TF.rms_norm(in_torch(x), width, eps=given), dtype)


def test_rms_norm_s_default_eps_is_torch_s_documented_one() -> None:
    """finfo(x.dtype).eps. In bfloat16 torch itself takes float32's, which its page doesn't say."""
    x = random(4, 64, scale=1e-3)
    result = ran(lambda self, x: F.rms_norm(x, 64), x)
    check(result, TF.rms_norm(in_torch(x), (64,)), FLOAT32)
    narrow = x.astype(BFLOAT16)
    result = ran(lambda self, x: F.rms_norm(x, 64), narrow)
    check(result, TF.rms_norm(in_torch(narrow), (64,), eps=2**-7), BFLOAT16)


@dtypes
def test_rms_norm_s_weight_is_llama_s_second_rounding(dtype: Any) -> None:
    x, w = random(6, 64, dtype=dtype), random(64, dtype=dtype, seed=1)
    llama = LlamaRMSNorm(64, eps=1e-5)
    kind = torch.bfloat16 if dtype == BFLOAT16 else torch.float32
    llama.weight.data = in_torch(w).to(kind)
    expected = llama(in_torch(x).to(kind)).float()
    result = ran(lambda self, x: F.rms_norm(x, 64, w, 1e-5), x)
    check(result, expected, dtype)
    if dtype == BFLOAT16:  # one rounding would give another neighbour to a quarter of them
        assert (result != rounded(expected, dtype)).sum() <= 2


@dtypes
@pytest.mark.parametrize("shape", [(64,), (5, 33), (2, 3, 64)])
def test_layer_norm_equals_torch_s(shape: tuple[int, ...], dtype: Any) -> None:
    x, width = random(*shape, dtype=dtype), shape[-1:]
    w, b = random(*width, dtype=dtype, seed=1), random(*width, dtype=dtype, seed=2)
    result = ran(lambda self, x: F.layer_norm(x, width), x)
    check(result, TF.layer_norm(in_torch(x), width), dtype)
    weighted = ran(lambda self, x: F.layer_norm(x, width, w, eps=1e-3), x)
    check(weighted, TF.layer_norm(in_torch(x), width, in_torch(w), eps=1e-3), dtype)
    # The bias is a step of its own.
    result = ran(lambda self, x: F.layer_norm(x, width, w, b, 1e-3), x)
    check(result, in_torch(weighted) + in_torch(b), dtype)


def test_a_row_of_one_value_has_norms_that_are_finite() -> None:
    x = np.zeros((2, 8), np.float32)
    assert not ran(lambda self, x: F.rms_norm(x, 8), x).any()
    assert not ran(lambda self, x: F.layer_norm(x + 3, 8), x).any()


# -- activations ----------------------------------------------------------------------------------

# Both tails, and where exp of float32 is too large.
SPREAD = np.concatenate([np.linspace(-8, 8, 97), [0, -0.0, 1e-30, -104, 104, -1e4, 1e4]])


@dtypes
@pytest.mark.parametrize(
    ("ours", "torch_s"),
    [
        (F.silu, TF.silu),
        (F.gelu, TF.gelu),
        (lambda x: F.gelu(x, "tanh"), lambda x: TF.gelu(x, approximate="tanh")),
    ],
    ids=["silu", "gelu", "gelu tanh"],
)
def test_activations_equal_torch_s(
    ours: Callable[..., Any], torch_s: Callable[..., Any], dtype: Any
) -> None:
    x = SPREAD.astype(dtype)
    result = ran(lambda self, x: ours(x), x)
    # In float64, for torch's 1 + tanh(x) cancels in the left tail: so does this, at 2**-53 of x.
    expected = torch_s(torch.from_numpy(x.astype(np.float64))).float()
    check(result, expected, dtype, of_largest=2**-64)
    narrow = random(999, dtype=dtype)
    check(ran(lambda self, x: ours(x), narrow), torch_s(in_torch(narrow)), dtype)


@dtypes
@pytest.mark.parametrize("shape", [(17,), (4, 64), (2, 3, 5), (5, 1)])
def test_softmax_equals_torch_s(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(*shape, dtype=dtype, scale=10)
    for dim in (-1, len(shape) - 1):
        result = ran(lambda self, x: F.softmax(x, self.dim), x, dim=dim)
        check(result, TF.softmax(in_torch(x), -1), dtype)


def test_softmax_of_large_numbers_is_finite() -> None:
    x = np.array([[1e30, 1e30, -1e30]], np.float32)
    assert_same_bits(ran(lambda self, x: F.softmax(x), x), np.array([[0.5, 0.5, 0]], np.float32))


# -- embedding ------------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_embedding_equals_torch_s(shape: tuple[int, ...], kind: Any, dtype: Any) -> None:
    w = random(11, 8, dtype=dtype)
    ids = np.random.default_rng(0).integers(0, 11, shape).astype(kind)
    expected = TF.embedding(torch.from_numpy(np.array(ids, np.int64)), in_torch(w))
    result = ran(lambda self, ids: F.embedding(ids, w), ids)
    assert_same_bits(result, rounded(expected, dtype))


def test_embedding_takes_a_number_for_an_id() -> None:
    w = random(11, 8)
    result = ran(lambda self, x: F.embedding(7, w) + x, np.zeros(8, np.float32))
    assert_same_bits(result, w[7])


# -- rope -----------------------------------------------------------------------------------------


def angle_rows(positions: int, width: int) -> tuple[Array, Array, Array]:
    """The angles' cosines and sines (positions, width / 2), and the rows that rope takes."""
    angles = np.arange(positions)[:, None] * 100.0 ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return cos, sin, np.stack([cos, sin], -1).reshape(positions, width)


@dtypes
@pytest.mark.parametrize(("positions", "heads"), [(1, 1), (5, 1), (5, 3)])
def test_rope_of_halves_equals_transformers_rotate_half(
    positions: int, heads: int, dtype: Any
) -> None:
    x = random(positions * heads, 16, dtype=dtype)
    cos, sin, rows = angle_rows(positions, 16)
    twice = (torch.from_numpy(np.concatenate([a, a], -1))[None] for a in (cos, sin))
    # transformers has (batch, heads, positions, width); ours is a position's heads, row by row.
    q = in_torch(x).reshape(1, positions, heads, 16).transpose(1, 2)
    turned, _ = apply_rotary_pos_emb(q, q, *twice)
    expected = turned.transpose(1, 2).reshape(positions * heads, 16)
    result = ran(lambda self, x: F.rope(x, rows), x)
    check(result, expected, dtype)


@dtypes
@pytest.mark.parametrize(("positions", "heads"), [(1, 1), (5, 1), (5, 3)])
def test_interleaved_rope_is_a_complex_product(positions: int, heads: int, dtype: Any) -> None:
    x = random(positions * heads, 16, dtype=dtype)
    cos, sin, rows = angle_rows(positions, 16)
    pairs = torch.view_as_complex(in_torch(x).reshape(positions, heads, 8, 2))
    turned = pairs * torch.complex(torch.from_numpy(cos), torch.from_numpy(sin))[:, None]
    expected = torch.view_as_real(turned).reshape(positions * heads, 16)
    result = ran(lambda self, x: F.rope(x, rows, interleaved=True), x)
    check(result, expected, dtype)


def test_rope_takes_angles_of_its_rows_dtype_too() -> None:
    x, (_, _, rows) = random(5, 16, dtype=BFLOAT16), angle_rows(5, 16)
    narrow = rows.astype(BFLOAT16)
    result = ran(lambda self, x: F.rope(x, narrow), x)
    wide = ran(lambda self, x: F.rope(x, narrow.astype(np.float32)), x)
    assert_same_bits(result, wide)
    assert (result != ran(lambda self, x: F.rope(x, rows), x)).any()


# -- attention ------------------------------------------------------------------------------------


def torch_attention(q: Array, k: Array, v: Array, seen: Array, scale: float | None) -> torch.Tensor:
    """torch's, (rows, heads, width) in and out; ``seen`` (rows, entries) says where a row looks."""
    heads_first = (in_torch(x).transpose(0, 1) for x in (q, k, v))
    mask = torch.from_numpy(np.array(seen))
    y = TF.scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=scale, enable_gqa=True)
    return y.transpose(0, 1)


@dtypes
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_equals_torch_s(heads: tuple[int, int], scale: float | None, dtype: Any) -> None:
    q = random(5, heads[0], 16, dtype=dtype)
    k, v = (random(9, heads[1], w, dtype=dtype, seed=w) for w in (16, 24))

    def body(self: Any, q: Handle) -> Handle:
        gqa = heads[0] != heads[1]
        return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=gqa)

    check(ran(body, q), torch_attention(q, k, v, np.ones((5, 9), bool), scale), dtype)


@dtypes
def test_causal_attention_without_a_position_equals_torch_s_is_causal(dtype: Any) -> None:
    q, k, v = (random(6, 2, 8, dtype=dtype, seed=i) for i in range(3))
    heads_first = (in_torch(x).transpose(0, 1) for x in (q, k, v))
    expected = TF.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(0, 1)
    result = ran(lambda self, q: F.scaled_dot_product_attention(q, k, v, is_causal=True), q)
    check(result, expected, dtype)


@dtypes
@pytest.mark.parametrize(("position", "rows"), [(0, 4), (3, 4), (8, 1), (5, 2)])
def test_causal_attention_over_a_cache_equals_torch_s_with_a_mask(
    position: int, rows: int, dtype: Any
) -> None:
    """Written at a position, seen up to each row's own: what is behind must not be seen."""
    k, v = (random(rows, 2, 8, dtype=dtype, seed=i) for i in (1, 2))
    q, before = random(rows, 4, 8, dtype=dtype), random(9, 2, 8, dtype=dtype, seed=3)

    def body(self: Any, q: Handle, k: Handle, v: Handle, *, position: Value) -> Handle:
        self.keys[position : position + rows] = k
        self.values[position : position + rows] = v
        return F.scaled_dot_product_attention(
            q, self.keys, self.values, position=position, is_causal=True, enable_gqa=True
        )

    graph = Network(body, keys=state((9, 2, 8), dtype), values=state((9, 2, 8), dtype))
    cache = graph.reference_states()
    cache["keys"], cache["values"] = before.copy(), before.copy()
    result = graph.reference(q, k, v, position=position)
    keys, values = before.copy(), before.copy()
    keys[position : position + rows], values[position : position + rows] = k, v
    assert_same_bits(cache["keys"], keys)
    assert_same_bits(cache["values"], values)
    seen = np.arange(9) <= position + np.arange(rows)[:, None]
    check(result, torch_attention(q, keys, values, seen, None), dtype)


@dtypes
@pytest.mark.parametrize("n", [1, 4, 9])
def test_attention_sees_no_key_behind_a_bound(n: int, dtype: Any) -> None:
    q = random(3, 2, 8, dtype=dtype)
    k, v = (Weight.of(random(9, 2, 8, dtype=dtype, seed=i)) for i in (1, 2))
    expected = torch_attention(q, k.load(), v.load(), np.arange(9)[None].repeat(3, 0) < n, None)
    bounded: list[Callable[..., Any]] = [
        lambda self, q, *, n: F.scaled_dot_product_attention(q, k[:n], v[:n]),
        lambda self, q, *, n: F.scaled_dot_product_attention(q, k[:n], v),
        lambda self, q, *, n: F.scaled_dot_product_attention(q, k, v[:n]),
    ]
    for body in bounded:
        check(ran(body, q, values={"n": n}), expected, dtype)


def test_a_chunk_s_padding_rows_leave_the_cache_and_the_valid_rows_as_they_are() -> None:
    def body(self: Any, x: Handle, *, position: Value, n: Value) -> Handle:
        rows = x[:n]
        self.keys[position : position + 4] = rows
        return F.scaled_dot_product_attention(
            rows, self.keys, self.keys, position=position, is_causal=True
        )

    x = random(10, 2, 8)
    keys = state((10, 2, 8), FLOAT32)
    whole = Network(
        lambda self, x: F.scaled_dot_product_attention(x, x + 0, x + 0, is_causal=True)
    ).reference(x)
    graph, rows, position = Network(body, keys=keys), [], 0
    for n in (4, 1, 3, 2):  # the last chunk's padding is past the end of the cache
        chunk = np.full((4, 2, 8), np.nan, np.float32)
        chunk[:n] = x[position : position + n]
        rows.append(graph.reference(chunk, position=position, n=n)[:n])
        position += n
    assert_same_bits(graph.reference_states()["keys"], x)
    assert_close(np.concatenate(rows), whole, ulp=4, reason="numpy sums by the number of keys")


# -- arithmetic -----------------------------------------------------------------------------------

OPERATIONS = [operator.add, operator.sub, operator.mul, operator.truediv]
operations = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.__name__)
SHAPES = [((4, 6), (4, 6)), ((4, 6), (6,)), ((4, 1), (1, 6)), ((2, 3, 6), (3, 1)), ((6,), (2, 6))]


@dtypes
@operations
@pytest.mark.parametrize("shapes", SHAPES)
def test_arithmetic_of_handles_equals_torch_s(operation: Any, shapes: Any, dtype: Any) -> None:
    a, b = (random(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes))
    kind = torch.bfloat16 if dtype == BFLOAT16 else torch.float32
    expected = rounded(operation(in_torch(a).to(kind), in_torch(b).to(kind)).float(), dtype)
    assert_same_bits(ran(lambda self, a, b: operation(a, b), a, b), expected)
    # The same with an array and with a weight, on either side.
    assert_same_bits(ran(lambda self, a: operation(a, b), a), expected)
    assert_same_bits(ran(lambda self, b: operation(a, b), b), expected)
    assert_same_bits(ran(lambda self, a: operation(a, Weight.of(b)), a), expected)
    assert_same_bits(ran(lambda self, b: operation(Weight.of(a), b), b), expected)


@dtypes
@operations
@pytest.mark.parametrize("number", [3, -0.1, np.float32(0.3), np.int64(7), np.array(0.7)])
def test_a_number_takes_the_handle_s_dtype(operation: Any, number: Any, dtype: Any) -> None:
    x = random(4, 6, dtype=dtype)
    kind = torch.bfloat16 if dtype == BFLOAT16 else torch.float32
    scalar = in_torch(number).to(kind)
    for ours, expected in [
        (lambda self, x: operation(x, number), operation(in_torch(x).to(kind), scalar)),
        (lambda self, x: operation(number, x), operation(scalar, in_torch(x).to(kind))),
    ]:
        assert_same_bits(ran(ours, x), rounded(expected.float(), dtype))


@dtypes
def test_a_handle_of_no_dimension_is_computed_with_too(dtype: Any) -> None:
    x = random(4, dtype=dtype)
    result = ran(lambda self, x: x[2] * 2 - x[1] + 1 / (x[0] + 1).reshape(()), x)
    a, b, c = (in_torch(x[i]).to(torch.bfloat16 if dtype == BFLOAT16 else None) for i in range(3))
    assert_same_bits(result, rounded((c * 2 - b + 1 / (a + 1)).float(), dtype))


def test_states_are_computed_with_as_handles_are() -> None:
    def body(self: Any, x: Handle) -> Any:
        self.kept[...] = x
        return self.kept + self.kept, 1 - self.kept, x / self.kept[...], self.kept[0] * self.kept[1]

    x = numbered(3, 4)
    results = ran(body, x, kept=state((3, 4), FLOAT32))
    for result, expected in zip(results, (x + x, 1 - x, x / x, x[0] * x[1]), strict=True):
        assert_same_bits(result, expected)


@dtypes
def test_a_row_product_equals_torch_s(dtype: Any) -> None:
    m, n = random(5, 8, dtype=dtype), random(8, 3, dtype=dtype, seed=1)
    x = random(8, dtype=dtype, seed=2)
    left, right = in_torch(m) @ in_torch(x), in_torch(x) @ in_torch(n)
    check(ran(lambda self, x: m @ x, x), left, dtype)
    check(ran(lambda self, x: x @ n, x), right, dtype)
    check(ran(lambda self, m: m @ x, m), left, dtype)
    check(ran(lambda self, n: x @ n, n), right, dtype)
    check(ran(lambda self, m, x: m @ x, m, x), left, dtype)
    check(ran(lambda self, x: Weight.of(m) @ x, x), left, dtype)
    check(ran(lambda self, x: x.reshape(1, 8) @ n, x), right[None], dtype)


def test_copy_and_reshape_keep_the_elements() -> None:
    x = numbered(2, 3, 4)
    assert_same_bits(ran(lambda self, x: x.copy(), x), x)
    assert_same_bits(ran(lambda self, x: x.reshape(6, 4).copy(), x), x.reshape(6, 4))
    assert_same_bits(ran(lambda self, x: (x + 0).reshape((-1, 12)), x), x.reshape(2, 12))
    turned = ran(lambda self, x: x.transpose(2, 0, 1).copy(), x)
    assert_same_bits(turned, np.ascontiguousarray(x.transpose(2, 0, 1)))
    assert_same_bits(ran(lambda self, x: x.transpose().copy(), x), np.ascontiguousarray(x.T))


# -- refusals -------------------------------------------------------------------------------------

WIDE = random(3, 8)
REFUSED: list[tuple[Callable[[Handle, Value], Any], str]] = [
    (
        lambda x, n: F.linear(x[0, 0], WIDE, precision=Precision.HIGH),
        r"linear\(\): x is \(\), a number; expected \(..., in\)",
    ),
    (
        lambda x, n: F.linear(x, WIDE, random(4), precision=Precision.HIGH),
        r"linear\(\): bias is \(4,\); weight is \(3, 8\), so it must be \(3,\)",
    ),
    (
        lambda x, n: F.linear(x, WIDE, random(1, 3), precision=Precision.HIGH),
        r"linear\(\): bias is \(1, 3\)",
    ),
    (
        lambda x, n: F.linear(x, random(3, 7), precision=Precision.HIGH),
        r"ProjectionGEMM.b is \(3, 7\); a is \(4, 8\), so it must be \(n, 8\)",
    ),
    (
        lambda x, n: F.linear(x, WIDE, precision="best"),
        r"linear\(\): precision is 'best'; expected one of \['default', 'high', 'highest'\]",
    ),
    (
        lambda x, n: F.linear(x, WIDE, precision=Precision.HIGH, num_aie_columns=4),
        r"linear\(\): 4 rows take no GEMV \['num_aie_columns'\]",
    ),
    (
        lambda x, n: F.rms_norm(x, (4, 8)),
        r"rms_norm\(\): normalized_shape is \(4, 8\); x is \(4, 8\), and only its last axis \(8,\)",
    ),
    (lambda x, n: F.rms_norm(x, 4), r"rms_norm\(\): normalized_shape is \(4,\)"),
    (lambda x, n: F.rms_norm(x, 8, random(4)), r"RMSNorm.weight is \(4,\); x is \(4, 8\)"),
    (lambda x, n: F.layer_norm(x, (4,)), r"layer_norm\(\): normalized_shape is \(4,\)"),
    (lambda x, n: F.gelu(x, "erf"), "GELU.approximate is 'erf'; expected 'none' or 'tanh'"),
    (
        lambda x, n: F.rope(x, random(3, 8)),
        r"RoPE.angles is \(3, 8\); x is \(4, 8\), so it must be",
    ),
    (lambda x, n: attend(x, heads=(3, 2)), "3 query heads, 2 key heads; pass enable_gqa=True"),
    (
        lambda x, n: attend(x, heads=(3, 2), enable_gqa=True),
        "Attention: 3 query heads are no multiple of 2 key heads",
    ),
    (lambda x, n: attend(x, position=n), "position says where causal rows stand; pass is_causal"),
    (
        lambda x, n: F.scaled_dot_product_attention(
            x.reshape(4, 2, 4), (x[:n] + 0).reshape(4, 2, 4), (x[: n + 1] + 0).reshape(4, 2, 4)
        ),
        r"key is bounded by n, value by n \+ 1",
    ),
]


def attend(x: Handle, heads: tuple[int, int] = (2, 2), **options: Any) -> Handle:
    query, key = (random(4, number, 4) for number in heads)
    return F.scaled_dot_product_attention(query, key, key, **options)


@pytest.mark.parametrize(
    ("use", "message"), [pytest.param(*r, id=f"{i} {r[1]}") for i, r in enumerate(REFUSED)]
)
def test_what_a_function_does_not_take_is_refused(
    use: Callable[[Handle, Value], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Network(lambda self, x, *, n: use(x, n)).trace(x=((4, 8), FLOAT32))


def test_functional_s_public_names_are_all_there() -> None:
    inside = f"{F.__name__}."
    functions = {n for n, f in vars(F).items() if getattr(f, "__module__", "").startswith(inside)}
    elsewhere = {"ConvState", "Epilogue", "Precision", "conv_state"}
    assert functions | elsewhere == set(F.__all__)
    assert all(getattr(F, name).__doc__ for name in F.__all__)
