"""Attention of other exporters over sizes, places and masks from anyone: right, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from other_nodes import MICROSOFT, Array
from provider_models import constant, iron, rand, spec

import onnx_iron

B, H, G, D = 2, 4, 2, 16
Names = dict[str, Array]


def model(
    op: str,
    inputs: dict[str, tuple[tuple[int | str, ...], Any]],
    order: str,
    outputs: str,
    constants: dict[str, Array] | None = None,
    opset: int = 24,
    **attributes: Any,
) -> bytes:
    """One node whose inputs may have open dimensions; ``-`` in the order is one left out."""
    domain = "" if op == "Attention" else MICROSOFT
    names = [name if name != "-" else "" for name in order.split()]
    node = helper.make_node(op, names, outputs.split(), name="n", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "graph",
        [spec(name, shape, dtype) for name, (shape, dtype) in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs.split()],
        [constant(name, array) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    result: bytes = made.SerializeToString()
    return result


def ours(serialized: bytes) -> ort.InferenceSession:
    session = iron(serialized)
    assert onnx_iron.placement(session).complete
    return session


def split(x: Array, count: int) -> Array:
    """(B, T, H * D) as (B, H, T, D) in float64."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3).astype(np.float64)


def joined(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def exact(query: Array, key: Array, value: Array, seen: Any = True, bias: Any = 0.0) -> Array:
    """Attention of (B, H, T, D) in float64; a row that sees nothing is 0."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    each = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, each, 1), np.repeat(value, each, 1)
    with np.errstate(all="ignore"):
        scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1]) + bias
        scores = np.where(seen, scores, -np.inf)
        largest = scores.max(-1, keepdims=True)
        weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
        total = weights.sum(-1, keepdims=True)
        return np.asarray((weights / np.where(total == 0, 1, total)) @ value)


def causal(rows: int, keys: int) -> Array:
    """The last rows of a sequence of so many keys."""
    return np.arange(keys)[None] <= np.arange(rows)[:, None] + keys - rows


def assert_close(got: Array, expected: Array) -> None:
    # Float32 sums of a few dozen products of numbers about 1.
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=4e-6)


# -- open dimensions ------------------------------------------------------------------------------

CHUNKS = (3, 1, 2, 1, 30, 1, 100, 1)


@pytest.mark.parametrize("batch", [1, 3])
def test_onnx_attention_follows_a_past_that_grows_from_nothing(batch: int) -> None:
    past = (("B", G, "P", D), np.float32)
    new = {n: (("B", c, "T", D), np.float32) for n, c in (("q", H), ("k", G), ("v", G))}
    session = ours(
        model("Attention", {**new, "pk": past, "pv": past}, "q k v - pk pv", "y k2 v2", is_causal=1)
    )
    keys = values = np.zeros((batch, G, 0, D), np.float32)
    for seed, rows in enumerate(CHUNKS):
        q, k, v = (rand(batch, c, rows, D, seed=3 * seed + i) for i, c in enumerate((H, G, G)))
        given = {"q": q, "k": k, "v": v, "pk": keys, "pv": values}
        y, keys, values = session.run(None, given)
        assert_close(y, exact(q, keys, values, causal(rows, keys.shape[2])))
        np.testing.assert_array_equal(keys, np.concatenate([given["pk"], k], 2))
    assert keys.shape[2] == sum(CHUNKS)


@pytest.mark.parametrize("batch", [1, 3])
def test_multi_head_attention_follows_a_past_that_grows_from_nothing(batch: int) -> None:
    past = (("B", H, "P", D), np.float32)
    new = dict.fromkeys("qkv", (("B", "T", H * D), np.float32))
    how = {"num_heads": H, "unidirectional": 1}
    order = "q k v - - - pk pv"
    session = ours(
        model("MultiHeadAttention", {**new, "pk": past, "pv": past}, order, "y k2 v2", **how)
    )
    keys = values = np.zeros((batch, H, 0, D), np.float32)
    for seed, rows in enumerate(CHUNKS):
        q, k, v = (rand(batch, rows, H * D, seed=3 * seed + i) for i in range(3))
        given = {"q": q, "k": k, "v": v, "pk": keys, "pv": values}
        y, keys, values = session.run(None, given)
        assert_close(y, joined(exact(split(q, H), keys, values, causal(rows, keys.shape[2]))))


def test_no_rows_give_no_rows_and_no_keys_are_an_error() -> None:
    shape = (("B", "T", H * D), np.float32)
    keys = (("B", "S", H * D), np.float32)
    session = iron(
        model("MultiHeadAttention", {"q": shape, "k": keys, "v": keys}, "q k v", "y", num_heads=H)
    )
    some, none = rand(B, 5, H * D), rand(B, 0, H * D)
    (y,) = session.run(None, {"q": none, "k": some, "v": some})
    assert y.shape == (B, 0, H * D)
    with pytest.raises(Exception, match=r"[Kk]ey|no keys|S"):
        session.run(None, {"q": some, "k": none, "v": none})
    (y,) = session.run(None, {"q": some, "k": some, "v": some})
    assert_close(y, joined(exact(*(split(some, H),) * 3)))


# -- places -------------------------------------------------------------------------------------


def grouped(rows: int, past: int, total: int) -> tuple[bytes, Names]:
    """A node whose cache has room for ``past`` entries, and operands for it."""
    q, k, v = (rand(B, rows, c * D, seed=i) for i, c in enumerate((H, G, G)))
    given = {"q": q, "k": k, "v": v, "pk": rand(B, G, past, D, seed=3)}
    given["pv"] = rand(B, G, past, D, seed=4)
    inputs = {name: (x.shape, np.float32) for name, x in given.items()}
    serialized = model(
        "GroupQueryAttention",
        {**inputs, "lengths": ((B,), np.int32)},
        "q k v pk pv lengths total",
        "y k2 v2",
        {"total": np.array([total], np.int32)},
        num_heads=H,
        kv_num_heads=G,
    )
    return serialized, given


def written(given: Names, lengths: tuple[int, ...]) -> tuple[Array, Array]:
    """The caches with each sequence's new rows as its last ones."""
    made = []
    for past, new in (("pk", "k"), ("pv", "v")):
        cache, rows = given[past].copy(), split(given[new], G)
        for b, length in enumerate(lengths):
            cache[b, :, length - rows.shape[2] : length] = rows[b]
        made.append(cache)
    return made[0], made[1]


@pytest.mark.parametrize("rows", [1, 20])
def test_lengths_of_a_cache_are_bounds_of_what_is_seen(rows: int) -> None:
    past = 30
    serialized, given = grouped(rows, past, past)
    session = ours(serialized)
    for lengths in ((past, rows), (rows, rows), (past - 1, past)):
        y, keys, values = session.run(None, {**given, "lengths": np.array(lengths, np.int32) - 1})
        expected = written(given, lengths)
        for b, length in enumerate(lengths):
            part = [x[b : b + 1, :, :length] for x in expected]
            for got, wanted in zip((keys, values), part, strict=True):
                np.testing.assert_array_equal(got[b : b + 1, :, :length], wanted)
            query = split(given["q"][b : b + 1], H)
            assert_close(y[b : b + 1], joined(exact(query, *part, causal(rows, length))))


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize(
    "last", [-1, -2, -(2**31), 2**31 - 1, 30, 31, 1000], ids=lambda n: f"last {n}"
)
def test_a_length_beyond_the_cache_or_below_none_is_an_error(rows: int, last: int) -> None:
    serialized, given = grouped(rows, 30, 30)
    session = ours(serialized)
    for place in range(B):
        lengths = np.full(B, 25, np.int32)
        lengths[place] = last
        with pytest.raises(Exception, match=f"seqlens_k {place} is {last}, expected"):
            session.run(None, {**given, "lengths": lengths})
    good = np.full(B, 25, np.int32)
    y, *_ = session.run(None, {**given, "lengths": good})
    keys, values = (x[:, :, :26] for x in written(given, (26, 26)))
    assert_close(y, joined(exact(split(given["q"], H), keys, values, causal(rows, 26))))


@pytest.mark.parametrize("total", [-1, 0, 2**31 - 1, -(2**31)])
def test_a_total_length_that_no_cache_has_is_an_error(total: int) -> None:
    serialized, given = grouped(3, 30, total)
    with pytest.raises(Exception, match=r"total_sequence_length|GroupQueryAttention"):
        iron(serialized).run(None, {**given, "lengths": np.full(B, 5, np.int32)})


def test_keys_beyond_nonpad_kv_seqlen_count_for_nothing_whatever_they_hold() -> None:
    rows, keys = 40, 50
    q, k, v = rand(B, H, rows, D), rand(B, G, keys, D, seed=1), rand(B, G, keys, D, seed=2)
    inputs = {n: (x.shape, np.float32) for n, x in (("q", q), ("k", k), ("v", v))}
    inputs["lengths"] = ((B,), np.int64)
    session = ours(model("Attention", inputs, "q k v - - - lengths", "y"))
    k[:, :, 45:], v[:, :, 45:] = np.nan, np.inf
    lengths = np.array([45, 7])
    (y,) = session.run(None, {"q": q, "k": k, "v": v, "lengths": lengths})
    for b, length in enumerate(lengths):
        part = (x[b : b + 1, :, :length] for x in (k, v))
        assert_close(y[b : b + 1], exact(q[b : b + 1], *part))
    for bad in (-1, keys + 1, 2**40, -(2**62), 2**63 - 1):
        with pytest.raises(Exception, match=f"kv_rows is {bad}, expected 0..{keys}"):
            session.run(None, {"q": q, "k": k, "v": v, "lengths": np.array([5, bad])})


# -- masks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 5, 40], ids=lambda n: f"{n} rows")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_a_mask_s_strange_number_stays_in_its_row(rows: int, bad: float) -> None:
    keys = 150
    q, k, v = rand(1, H, rows, D), rand(1, G, keys, D, seed=1), rand(1, G, keys, D, seed=2)
    mask = rand(rows, keys, seed=3)
    mask[0, 140] = bad
    given = {"q": q, "k": k, "v": v, "mask": mask}
    session = ours(
        model("Attention", {n: (x.shape, np.float32) for n, x in given.items()}, "q k v mask", "y")
    )
    (y,) = session.run(None, given)
    assert_close(y, exact(q, k, v, bias=mask.astype(np.float64)))


WRONG = [(6, 7), (5, 8), (5, 6), (3, 5, 7), (H, 5, 8), (3, H, 5, 7), (B, 3, 5, 7), (7,), (0, 7)]


@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
@pytest.mark.parametrize("shape", WRONG, ids=str)
def test_a_mask_of_another_shape_is_an_error(shape: tuple[int, ...], dtype: Any) -> None:
    """Also where the model leaves the mask's dimensions open, and only the call knows them."""
    q, k, v = rand(B, H, 5, D), rand(B, G, 7, D, seed=1), rand(B, G, 7, D, seed=2)
    mask = rand(*shape, seed=3).astype(dtype)
    for sizes in (shape, tuple(f"m{i}" for i in range(len(shape)))):
        inputs = {n: (x.shape, np.float32) for n, x in (("q", q), ("k", k), ("v", v))}
        serialized = model("Attention", {**inputs, "mask": (sizes, dtype)}, "q k v mask", "y")
        with pytest.raises(Exception, match=r".+"):
            iron(serialized).run(None, {"q": q, "k": k, "v": v, "mask": mask})


# -- heads --------------------------------------------------------------------------------------

HEADS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "a width that is no whole heads": ({"num_heads": 5}, {}),
    "no heads": ({"num_heads": 0}, {}),
    "heads below none": ({"num_heads": -4}, {}),
    "keys of another batch": ({"num_heads": H}, {"k": (B + 1, 7, H * D)}),
    "values of another length": ({"num_heads": H}, {"v": (B, 8, H * D)}),
    "keys of another width": ({"num_heads": H}, {"k": (B, 7, H * D + H)}),
    "a past of other heads": ({"num_heads": H}, {"pk": (B, H + 1, 3, D), "pv": (B, H + 1, 3, D)}),
    "a past of another width": ({"num_heads": H}, {"pk": (B, H, 3, D + 1), "pv": (B, H, 3, D)}),
    "pasts of two lengths": ({"num_heads": H}, {"pk": (B, H, 3, D), "pv": (B, H, 4, D)}),
}


@pytest.mark.parametrize("fault", HEADS)
def test_heads_that_do_not_fit_are_an_error(fault: str) -> None:
    how, changed = HEADS[fault]
    shapes: dict[str, tuple[int, ...]] = {"q": (B, 5, H * D), "k": (B, 7, H * D)}
    shapes |= {"v": (B, 7, H * D), "pk": (B, H, 3, D), "pv": (B, H, 3, D), **changed}
    given = {name: rand(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    for named in (False, True):
        inputs: dict[str, tuple[tuple[int | str, ...], Any]] = {}
        for name, x in given.items():
            open_ = tuple(f"{name}{i}" for i in range(len(x.shape)))
            inputs[name] = (open_ if named else x.shape, np.float32)
        serialized = model("MultiHeadAttention", inputs, "q k v - - - pk pv", "y k2 v2", **how)
        with pytest.raises(Exception, match=r".+"):
            iron(serialized).run(None, given)


# -- one buffer ---------------------------------------------------------------------------------


def test_a_cache_bound_as_past_and_present_is_updated_in_place() -> None:
    past, steps = 40, (12, 1, 1, 20, 1)
    keys, values = (np.zeros((B, G, past, D), np.float32) for _ in range(2))
    caches = [ort.OrtValue.ortvalue_from_numpy(x) for x in (keys, values)]
    length = 0
    for seed, rows in enumerate(steps):
        length += rows
        serialized, _ = grouped(rows, past, length)
        session = ours(serialized)
        q, k, v = (rand(B, rows, c * D, seed=9 * seed + i) for i, c in enumerate((H, G, G)))
        for cache, new in ((keys, k), (values, v)):
            cache[:, :, length - rows : length] = split(new, G)
        binding = session.io_binding()
        for name, array in (("q", q), ("k", k), ("v", v)):
            binding.bind_cpu_input(name, array)
        binding.bind_cpu_input("lengths", np.full(B, length - 1, np.int32))
        for cache, name, made in zip(caches, ("pk", "pv"), ("k2", "v2"), strict=True):
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(made, cache)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        seen = keys[:, :, :length], values[:, :, :length]
        y = binding.copy_outputs_to_cpu()[-1]  # in the order of binding
        assert_close(y, joined(exact(split(q, H), *seen, causal(rows, length))))
        np.testing.assert_array_equal(caches[0].numpy(), keys)
        np.testing.assert_array_equal(caches[1].numpy(), values)
