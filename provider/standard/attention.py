"""Attention over a cache: ONNX's, and the rows that are written into one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from onnx_iron.dtypes import BOOL, FLOAT32, FLOATS, INT32, INT64, Spec
from onnx_iron.provider.lowering import Difference, Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.rule import rule

# The places of Attention's inputs.
POSITION, KV_ROWS, MASK, BIAS, SINKS = 3, 4, 5, 6, 8


@dataclass(frozen=True)
class Heads:
    """An operand that has heads: its name, in which order its axes are, and their sizes."""

    name: str
    heads_first: bool
    batch: int
    heads: int
    rows: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, T, D), or (B, T, H, D)."""
        middle = (self.heads, self.rows) if self.heads_first else (self.rows, self.heads)
        return (self.batch, *middle, self.width)


def heads_of(op: Operation, index: int, heads: int) -> Heads:
    """An input (B, H, T, D), or (B, T, H * D) with the heads given."""
    spec = op.spec(index)
    op.require(spec.dtype in FLOATS, f"input {index} is {spec.dtype.name}")
    op.require(len(spec.shape) in (3, 4), f"input {index} is {spec}: neither 3 nor 4 axes")
    if len(spec.shape) == 4:
        batch, own, rows, width = spec.shape
        return Heads(op.input(index), True, batch, own, rows, width)
    batch, rows, hidden = spec.shape
    op.require(heads > 0, f"input {index} is {spec} and the number of its heads is {heads}")
    op.require(hidden % heads == 0, f"input {index} is {spec}, no whole {heads} heads")
    width = hidden // heads
    name = op.viewed(op.input(index), (batch, rows, heads, width))
    return Heads(name, False, batch, heads, rows, width)


def heads_first(op: Operation, x: Heads, output: int | None = None) -> Heads:
    """The same with heads first, as caches have them; an output of the node where asked for."""
    turned = Heads(x.name, True, x.batch, x.heads, x.rows, x.width)
    asked = output is not None and output < op.output_count and bool(op.node.outputs[output])
    if x.heads_first:
        if asked and output is not None:
            op.view(x.name, x.shape, index=output)
        return turned
    spec = Spec(turned.shape, op.spec(0).dtype)
    name = op.output(spec, output) if asked and output is not None else op.temporary(spec)
    moved = standard("Transpose", moves=True, perm=[0, 2, 1, 3])
    op.step(moved, [x.name], [name])
    return Heads(name, True, x.batch, x.heads, x.rows, x.width)


def check_past(op: Operation, past: int, x: Heads) -> None:
    """Refuse a past that is not (B, G, P, D) for the new entries' B, G and D."""
    shape, expected = op.spec(past).shape, (x.batch, x.heads, "past", x.width)
    if len(shape) != 4 or shape[:2] != (x.batch, x.heads) or shape[3] != x.width:
        axes = ((-4, x.batch), (-3, x.heads), (-1, x.width)) if len(shape) == 4 else ()
        differences = [Difference(past, axis, shape[axis], size) for axis, size in axes]
        op.refuse(f"a past is {op.spec(past)}, expected {expected}", differences)


def appended(op: Operation, x: Heads, past: int, output: int) -> Heads:
    """A past (B, G, P, D) and the new entries after it, an output of the node."""
    spec, dtype = op.spec(past), op.spec(0).dtype
    op.require(spec.dtype == dtype, f"a past is {spec.dtype.name} for {dtype.name}")
    check_past(op, past, x)
    new = heads_first(op, x)
    entries = spec.shape[2] + x.rows
    name = op.output(Spec((x.batch, x.heads, entries, x.width), dtype), output)
    joined = standard("Concat", moves=True, axis=2)
    op.step(joined, [op.input(past), new.name], [name])
    return Heads(name, True, x.batch, x.heads, entries, x.width)


def with_past(
    op: Operation, key: Heads, value: Heads, pasts: tuple[int, int]
) -> tuple[Heads, Heads]:
    """Keys and values after those of the past, where there is one; outputs 1 and 2."""
    given = [op.has(index) for index in pasts]
    op.require(given[0] == given[1], "it has a past of keys or of values alone")
    if given[0]:
        made = appended(op, key, pasts[0], 1), appended(op, value, pasts[1], 2)
        op.require(made[0].rows == made[1].rows, "the pasts of keys and values differ in length")
        return made
    if any(index < op.output_count and op.node.outputs[index] for index in (1, 2)):
        return heads_first(op, key, 1), heads_first(op, value, 2)
    if key.heads_first != value.heads_first:
        return heads_first(op, key), heads_first(op, value)
    return key, value


def attend(
    op: Operation,
    query: Heads,
    key: Heads,
    value: Heads,
    further: dict[int, str],
    **attributes: Any,
) -> None:
    """The step itself, and output 0 in query's order."""
    same = key.batch == value.batch == query.batch and key.width == query.width
    op.require(same, f"query is {query.shape}, key {key.shape}, value {value.shape}")
    fits = (key.heads, key.rows) == (value.heads, value.rows) and key.heads > 0
    op.require(fits, f"key is {key.shape}, value {value.shape}")
    op.require(query.heads % key.heads == 0, f"{query.heads} heads are no multiple of {key.heads}")
    op.require(key.rows > 0, "there are no keys")
    dtype = op.spec(0).dtype
    last = (*query.shape[:3], value.width)
    hidden = (query.batch, query.rows, query.heads * value.width)
    made = op.output(Spec(last, dtype)) if query.heads_first else op.temporary(Spec(last, dtype))
    kernel = standard(
        "Attention",
        query_heads_first=int(query.heads_first),
        cache_heads_first=int(key.heads_first),
        **attributes,
    )
    inputs: list[str | None] = [query.name, key.name, value.name]
    inputs += [further.get(index) for index in range(3, max(further, default=2) + 1)]
    op.step(kernel, inputs, [made])
    if not query.heads_first:
        op.view(made, hidden)


def further_of(
    op: Operation, index: int, shape: tuple[int, ...], open_rows: bool
) -> dict[int, str]:
    """A mask or bias that broadcasts to (B, H, T, S), its last axis whole."""
    spec = op.spec(index)
    rank = len(spec.shape)
    wide = shape[-rank:] if 2 <= rank <= 4 else ()
    fits = bool(wide) and all(d in (1, w) for d, w in zip(spec.shape[:-2], wide[:-2], strict=True))
    fits = (
        fits
        and spec.shape[-1] == wide[-1]
        and spec.shape[-2] in {wide[-2], 1 if open_rows else wide[-2]}
    )
    op.require(fits, f"input {index} is {spec}, expected the last axes of {shape}")
    if spec.dtype == BOOL:
        return {MASK: op.input(index)}
    own = spec.dtype in (op.spec(0).dtype, FLOAT32)
    op.require(own, f"input {index} is {spec.dtype.name}")
    return {BIAS: op.input(index)}


def softcap_of(op: Operation) -> dict[str, float]:
    """The attribute ``softcap``, as the kernel takes it."""
    cap = float(op.attribute("softcap", 0.0))
    op.require(0 <= cap < math.inf, f"softcap is {cap}")
    return {"softcap": cap} if cap else {}


@rule("Attention", since=23, newest=25)
def attention(op: Operation) -> None:
    op.require(op.output_count < 4, "the product of queries and keys is asked for")
    scale = op.attribute("scale", None)
    op.require(scale is None or float(scale) > 0, f"scale is {scale}")
    attributes: dict[str, Any] = softcap_of(op)
    if scale is not None:
        attributes["scale"] = float(scale)
    heads = int(op.attribute("q_num_heads", 0)), int(op.attribute("kv_num_heads", 0))
    ranks = [len(op.spec(index).shape) for index in range(3)]
    op.require(len(set(ranks)) == 1, f"query, key and value have {ranks} axes")
    query = heads_of(op, 0, heads[0])
    key, value = heads_of(op, 1, heads[1]), heads_of(op, 2, heads[1])
    dtypes = {op.spec(index).dtype for index in range(3)}
    op.require(len(dtypes) == 1, "query, key and value are of several dtypes")
    new = key.rows
    key, value = with_past(op, key, value, (4, 5))
    further: dict[int, str] = {}
    if op.has(3):
        whole = (query.batch, query.heads, query.rows, key.rows)
        further |= further_of(op, 3, whole, op.node.since_version > 24)
    causal = bool(op.attribute("is_causal", 0))
    if op.has(6):
        lengths = op.spec(6)
        op.require(not op.has(4), "it has a past and nonpad_kv_seqlen")
        fits = lengths == Spec((query.batch,), INT64)
        op.require(fits, f"nonpad_kv_seqlen is {lengths}, expected {query.batch} int64")
        further[KV_ROWS] = op.input(6)
        attributes["from_lengths"] = 1
    elif causal and op.has(4):
        attributes["past"] = key.rows - new
    left, right = (int(op.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    op.require(right == -1 or (causal and right >= 0), f"right_window_size is {right}")
    op.require(left == -1 or (causal and left >= 0), f"left_window_size is {left}")
    if left >= 0:
        attributes["window"] = left + 1
    attend(op, query, key, value, further, is_causal=int(causal), **attributes)


@rule("TensorScatter", since=24, newest=24)
def tensor_scatter(op: Operation) -> None:
    past, update = op.spec(0), op.spec(1)
    op.require(past.dtype == update.dtype, f"a cache of {past} and an update of {update}")
    mode = op.attribute("mode", "linear")
    op.require(mode in ("linear", "circular"), f"mode is {mode}")
    axis = op.from_front(int(op.attribute("axis", -2)), len(past.shape))
    inputs: list[str | None] = [op.input(0), op.input(1)]
    if op.has(2):
        places = op.spec(2)
        op.require(places.dtype in (INT32, INT64), f"write_indices are {places.dtype.name}")
        inputs.append(op.input(2))
    kernel = standard(
        "TensorScatter", moves=True, updates=True, axis=axis, circular=int(mode == "circular")
    )
    op.step(kernel, inputs, [op.output(past)])
