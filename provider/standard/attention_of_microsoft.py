"""Attention as onnxruntime's exporters write it, of the domain com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_iron.dtypes import BOOL, FLOAT32, INT32, INT64, Shape, Spec
from onnx_iron.operators.arithmetic import Add
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.attention import (
    BIAS,
    KV_ROWS,
    POSITION,
    SINKS,
    Heads,
    attend,
    check_past,
    further_of,
    heads_of,
    softcap_of,
    with_past,
)
from onnx_iron.provider.standard.microsoft import DOMAIN
from onnx_iron.provider.standard.rule import broadcast, rule


@rule("MultiHeadAttention", since=1, newest=1, domain=DOMAIN)
def multi_head_attention(op: Operation) -> None:
    op.require(op.output_count < 4, "the product of queries and keys is asked for")
    op.require(op.has(1) and op.has(2), "its queries, keys and values are packed")
    ranks = [len(op.spec(index).shape) for index in range(3)]
    op.require(ranks in ([3, 3, 3], [3, 4, 4]), f"query, key and value have {ranks} axes")
    shared = op.has(8) or op.has(9)
    op.require(not shared, "its past has room for more, or several beams")
    dtype = op.spec(0).dtype
    op.require(all(op.spec(i).dtype == dtype for i in (1, 2)), "its operands are of several dtypes")
    heads = int(op.attribute("num_heads", 0))
    query, key, value = (heads_of(op, index, heads) for index in range(3))
    op.require(key.heads == query.heads, f"{query.heads} heads, of keys {key.heads}")
    if op.has(3):
        op.require(ranks[1] == 3, "it has a bias and keys with heads first")
        query, key, value = _with_bias(op, (query, key, value))
    new = key.rows
    if ranks[1] == 4:
        op.require(not op.has(6), "it has a past and keys with heads first")
    key, value = with_past(op, key, value, (6, 7))
    attributes: dict[str, Any] = {"empty_is_nan": 1}
    scale = float(op.attribute("scale", 0.0))
    if scale:
        attributes["scale"] = scale
    if op.attribute("unidirectional", 0) == 1:
        op.require(query.rows == new, f"{query.rows} causal rows of {new} new entries")
        attributes |= {"is_causal": 1, "past": key.rows - new}
    added, shape = _padding(op, query, key) if op.has(4) else (None, ())
    if op.has(5):
        op.require(len(op.spec(5).shape) == 4, f"attention_bias is {op.spec(5)}: no 4 axes")
        whole = (query.batch, query.heads, query.rows, key.rows)
        bias = further_of(op, 5, whole, False)
        op.require(BIAS in bias, "attention_bias is bool")
        added = bias[BIAS] if added is None else _sum(op, added, shape, 5)
    attend(op, query, key, value, {} if added is None else {BIAS: added}, **attributes)


def _with_bias(op: Operation, operands: tuple[Heads, Heads, Heads]) -> tuple[Heads, ...]:
    """Queries, keys and values, each with its part of the projections' bias."""
    dtype = op.spec(0).dtype
    sizes = [x.heads * x.width for x in operands]
    expected = Spec((sum(sizes),), dtype)
    op.require(op.spec(3) == expected, f"the bias is {op.spec(3)}, expected {expected}")
    start, made = 0, []
    for x, size in zip(operands, sizes, strict=True):
        part, total = op.temporary(Spec((size,), dtype)), op.temporary(Spec(x.shape, dtype))
        cut = standard("Slice", moves=True, axes=[0], starts=[start], steps=[1])
        op.step(cut, [op.input(3)], [part])
        op.step(Add(), [x.name, op.viewed(part, (x.heads, x.width))], [total])
        made.append(Heads(total, False, x.batch, x.heads, x.rows, x.width))
        start += size
    return tuple(made)


def _padding(op: Operation, query: Heads, key: Heads) -> tuple[str, Shape]:
    """What is added to the scores of keys that key_padding_mask leaves out, and its shape."""
    spec = op.spec(4)
    op.require(spec.dtype == INT32, f"key_padding_mask is {spec.dtype.name}")
    if spec.shape == (query.batch, key.rows):
        shape = (query.batch, 1, 1, key.rows)
    else:
        fits = spec.shape == (query.batch, query.rows, key.rows)
        op.require(fits, f"key_padding_mask is {spec}, expected {(query.batch, key.rows)}")
        shape = (query.batch, 1, query.rows, key.rows)
    seen, added = op.temporary(Spec(shape, BOOL)), op.temporary(Spec(shape, FLOAT32))
    given = op.viewed(op.input(4), shape)
    op.step(standard("Greater"), [given, op.literal(np.zeros((), np.int32))], [seen])
    outside = np.float32(op.attribute("mask_filter_value", -10000.0))
    choices = [seen, op.literal(np.zeros((), np.float32)), op.literal(np.array(outside))]
    op.step(standard("Where", elementwise=True, moves=True), choices, [added])
    return added, shape


def _sum(op: Operation, added: str, shape: Shape, index: int) -> str:
    """Two biases, as one."""
    bias = op.input(index)
    if op.spec(index).dtype != FLOAT32:
        bias = op.temporary(Spec(op.spec(index).shape, FLOAT32))
        op.step(standard("Cast", moves=True), [op.input(index)], [bias])
    total = op.temporary(Spec(broadcast(op, shape, op.spec(index).shape), FLOAT32))
    op.step(Add(), [added, bias], [total])
    return total


@rule("GroupQueryAttention", since=1, newest=1, domain=DOMAIN)
def group_query_attention(op: Operation) -> None:
    op.require(op.output_count < 4, "the product of queries and keys is asked for")
    names = {9: "position_ids", 12: "k_scale", 13: "v_scale", 14: "q_norm_weight"}
    names |= {15: "k_norm_weight", 16: "query_seqlens"}
    asked = [name for index, name in names.items() if op.has(index)]
    for name, plain in (("sliding_window_cache", 0), ("kv_cache_bit_width", 0), ("causal", 1)):
        asked += [name] if op.attribute(name, plain) != plain else []
    quantized = [op.attribute(f"{x}_quant_type", "NONE") for x in "kv"]
    asked += ["a quantized cache"] if quantized != ["NONE", "NONE"] else []
    op.require(not asked, f"it has {' and '.join(asked)}")
    heads, groups = int(op.attribute("num_heads", 0)), int(op.attribute("kv_num_heads", 0))
    op.require(groups > 0 and heads % groups == 0, f"{heads} heads, of keys {groups}")
    query, key, value = _projected(op, heads, groups)
    op.require(key.batch == query.batch and key.rows == query.rows, "new rows differ in number")
    op.require(key.shape == value.shape and key.width == query.width, "their widths differ")
    op.require(query.rows > 0, "there are no rows")
    past, entries = _entries(op, key)
    place, lengths, positions = _places(op, query, past, entries)
    if op.attribute("do_rotary", 0) == 1:
        query, key = (_turned(op, x, positions) for x in (query, key))
    key = _written(op, key, 3, place, entries, 1)
    value = _written(op, value, 4, place, entries, 2)
    attributes: dict[str, Any] = {"is_causal": 1, "from_lengths": 1, **softcap_of(op)}
    scale, window = float(op.attribute("scale", 0.0)), int(op.attribute("local_window_size", -1))
    if scale:
        attributes["scale"] = scale
    op.require(window == -1 or window > 0, f"local_window_size is {window}")
    if window > 0:
        attributes["window"] = window
    further = {POSITION: place, KV_ROWS: lengths}
    if op.has(10):
        whole = (query.batch, query.heads, query.rows, entries)
        further |= further_of(op, 10, whole, False)
        op.require(BIAS in further, "attention_bias is bool")
    sinks = op.input(11) if op.has(11) else None
    if op.attribute("smooth_softmax", 0) == 1 and sinks is None:
        sinks = op.literal(np.zeros(heads, np.float32))
    if sinks is not None:
        further[SINKS] = sinks
    attend(op, query, key, value, further, **attributes)


def _projected(op: Operation, heads: int, groups: int) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values, (B, T, heads, D) each, which may come in one operand."""
    spec = op.spec(0)
    op.require(len(spec.shape) == 3, f"query is {spec}: no 3 axes")
    op.require(op.has(1) == op.has(2), "it has keys or values alone")
    if op.has(1):
        same = all(op.spec(index).dtype == spec.dtype for index in (1, 2))
        op.require(same and all(len(op.spec(i).shape) == 3 for i in (1, 2)), "keys are no rows")
        return heads_of(op, 0, heads), heads_of(op, 1, groups), heads_of(op, 2, groups)
    whole = heads_of(op, 0, heads + 2 * groups)
    start, made = 0, []
    for count in (heads, groups, groups):
        part = Heads("", False, whole.batch, count, whole.rows, whole.width)
        name = op.temporary(Spec(part.shape, spec.dtype))
        cut = standard(
            "Slice", moves=True, axes=list(range(4)), starts=[0, 0, start, 0], steps=[1] * 4
        )
        op.step(cut, [whole.name], [name])
        made.append(Heads(name, False, whole.batch, count, whole.rows, whole.width))
        start += count
    return made[0], made[1], made[2]


def _entries(op: Operation, key: Heads) -> tuple[int, int]:
    """How many entries the past has room for, and the present."""
    op.require(op.has(3) == op.has(4), "it has a past of keys or of values alone")
    if not op.has(3):
        return 0, key.rows
    check_past(op, 3, key)
    check_past(op, 4, key)
    spec = op.spec(3)
    op.require(spec == op.spec(4), f"the pasts are {spec} and {op.spec(4)}")
    op.require(spec.dtype == op.spec(0).dtype, f"the past is {spec.dtype.name}")
    past = spec.shape[2]
    total = op.known(6)
    if total is None:
        op.require(not op.is_guess(3) and past == 0, "how long its present is, only a call knows")
        return past, key.rows
    op.require(total.size == 1, f"total_sequence_length has {total.size} elements")
    longest = total.reshape(-1)[0]
    return past, past if longest <= past else past + key.rows


def _places(op: Operation, query: Heads, past: int, entries: int) -> tuple[str, str, str]:
    """Where each sequence's new rows go, how long it is then, and the rows' positions."""
    lengths, total = op.spec(5), op.spec(6)
    fits = lengths.dtype == total.dtype == INT32 and lengths.elements == query.batch
    op.require(fits and total.elements == 1, f"seqlens_k is {lengths}, its longest {total}")
    each = Spec((query.batch,), INT32)
    made = op.temporary(each), op.temporary(each)
    positions = op.temporary(Spec((query.batch, query.rows), INT64))
    kernel = standard("CachePlaces", rows=query.rows, past=past, entries=entries)
    given = op.viewed(op.input(5), (query.batch,)), op.viewed(op.input(6), (1,))
    op.step(kernel, list(given), [*made, positions])
    return *made, positions


def _turned(op: Operation, x: Heads, positions: str) -> Heads:
    """Each head turned to its row's position, by tables of cosines and sines."""
    op.require(op.has(7) and op.has(8), "it turns heads without tables")
    cosines, sines, dtype = op.spec(7), op.spec(8), op.spec(0).dtype
    op.require(cosines == sines and cosines.dtype == dtype, f"tables are {cosines} and {sines}")
    op.require(len(cosines.shape) == 2, f"tables are {cosines}")
    turned = 2 * cosines.shape[1]
    op.require(0 < turned <= x.width, f"{turned} of {x.width} elements turn")
    hidden = (x.batch, x.rows, x.heads * x.width)
    name = op.temporary(Spec(hidden, dtype))
    kernel = standard(
        "RotaryEmbedding",
        heads=x.heads,
        turned=turned,
        interleaved=int(op.attribute("rotary_interleaved", 0)),
    )
    op.step(kernel, [op.viewed(x.name, hidden), op.input(7), op.input(8), positions], [name])
    return Heads(op.viewed(name, x.shape), False, x.batch, x.heads, x.rows, x.width)


def _written(op: Operation, x: Heads, past: int, place: str, entries: int, output: int) -> Heads:
    """The cache with the new rows in it, an output."""
    made = Heads("", True, x.batch, x.heads, entries, x.width)
    spec = Spec(made.shape, op.spec(0).dtype)
    name = op.output(spec, output)
    if op.has(past):
        kernel = standard("TensorScatter", moves=True, updates=True, axis=2, rows_first=1, fresh=1)
        op.step(kernel, [op.input(past), x.name, place], [name])
    else:
        op.step(standard("Transpose", moves=True, perm=[0, 2, 1, 3]), [x.name], [name])
    return Heads(name, True, x.batch, x.heads, entries, x.width)
