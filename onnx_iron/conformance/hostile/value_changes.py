"""Changes of the values that a model declares and holds, of its weights file and its metadata."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_iron.conformance.hostile.change import (
    INTEGERS,
    TEXTS,
    Random,
    change,
    graphs,
    one,
    value_names,
)
from onnx_iron.conformance.hostile.originals import Draft


def _declared(draft: Draft) -> list[onnx.ValueInfoProto]:
    found = []
    for graph in graphs(draft.model):
        found += [*graph.input, *graph.output, *graph.value_info]
    return found


@change
def a_declared_shape(rng: Random, draft: Draft) -> str | None:
    """A dimension, or the rank, of an input, an output or a value between."""
    values = _declared(draft)
    if not values:
        return None
    value = one(rng, values)
    shape = value.type.tensor_type.shape
    how = one(rng, ("number", "symbol", "more", "fewer", "none", "neighbour"))
    if how == "none":
        value.type.tensor_type.ClearField("shape")
    elif how == "more" or not shape.dim:
        shape.dim.add(dim_value=one(rng, INTEGERS))
    elif how == "fewer":
        del shape.dim[int(rng.integers(len(shape.dim)))]
    elif how == "symbol":
        one(rng, shape.dim).dim_param = one(rng, ("rows", *TEXTS))
    else:
        dim = one(rng, shape.dim)
        near = (dim.dim_value + 1, dim.dim_value - 1, dim.dim_value * 2)
        dim.dim_value = min(one(rng, INTEGERS if how == "number" else near), (1 << 63) - 1)
    dims = [d.dim_param[:20] or d.dim_value for d in shape.dim]
    return f"{value.name[:30]!r} is declared {how} {dims}"


@change
def a_declared_type(rng: Random, draft: Draft) -> str | None:
    """The dtype that is declared for a value; or that it is no tensor."""
    values = _declared(draft)
    if not values:
        return None
    value = one(rng, values)
    if rng.random() < 0.15:
        value.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
        return f"{value.name[:30]!r} is declared a sequence"
    value.type.tensor_type.elem_type = one(rng, (*range(24), 99, -1))
    return f"{value.name[:30]!r} is declared of type {value.type.tensor_type.elem_type}"


@change
def a_values_name(rng: Random, draft: Draft) -> str | None:
    """A value renamed where it is declared, or everywhere in the main graph."""
    known = value_names(draft)
    if not known:
        return None
    old, new = one(rng, known), one(rng, (*TEXTS, f"{one(rng, known)}", f"{known[0]}\0b"))
    graph = draft.model.graph
    everywhere = bool(rng.random() < 0.6)
    for value in (*graph.input, *graph.output, *graph.initializer):
        if value.name == old:
            value.name = new
    if everywhere:
        for node in graph.node:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]
        if old in draft.feeds:
            draft.feeds[new] = draft.feeds.pop(old)
    return f"{old[:30]!r} is named {new[:30]!r} {'everywhere' if everywhere else 'where declared'}"


@change
def the_border(rng: Random, draft: Draft) -> str | None:
    """The model's inputs and outputs: one less, one twice, one more."""
    graph = draft.model.graph
    ports = one(rng, (graph.input, graph.output))
    how = one(rng, ("fewer", "doubled", "more", "reversed"))
    if how == "more" or not ports:
        name = one(rng, (*value_names(draft), "unused"))
        shape = [one(rng, (1, 4, 1 << 20, 1 << 31)) for _ in range(int(rng.integers(4)))]
        ports.append(helper.make_tensor_value_info(name, one(rng, (1, 6, 7, 9, 16)), shape))
    elif how == "fewer":
        del ports[int(rng.integers(len(ports)))]
    elif how == "doubled":
        ports.append(one(rng, ports))
    else:
        kept = [onnx.ValueInfoProto.FromString(port.SerializeToString()) for port in ports]
        del ports[:]
        ports.extend(reversed(kept))
    return f"{'inputs' if ports is graph.input else 'outputs'}: {how}"


def _tensors(draft: Draft) -> list[TensorProto]:
    found = []
    for graph in graphs(draft.model):
        found += list(graph.initializer)
        found += [a.t for node in graph.node for a in node.attribute if a.HasField("t")]
    return found


@change
def a_weights_form(rng: Random, draft: Draft) -> str | None:
    """A weight's dims or dtype, its bytes left as they are; or it is dropped or doubled."""
    tensors = _tensors(draft)
    if not tensors:
        return None
    tensor = one(rng, tensors)
    how = one(rng, ("dim", "rank", "dtype", "dropped", "doubled"))
    if how == "dim" and tensor.dims:
        tensor.dims[int(rng.integers(len(tensor.dims)))] = one(rng, INTEGERS)
    elif how == "dtype":
        tensor.data_type = one(rng, (*range(24), 99))
    elif how in ("dropped", "doubled") and draft.model.graph.initializer:
        held = draft.model.graph.initializer
        place = int(rng.integers(len(held)))
        if how == "dropped":
            del held[place]
        else:
            held.add().CopyFrom(held[place])
    else:
        tensor.dims[:] = [*tensor.dims, one(rng, INTEGERS)] if rng.random() < 0.5 else []
    return f"a weight's form: {how}"


@change
def a_weights_bytes(rng: Random, draft: Draft) -> str | None:
    """The bytes of a weight inside the model: fewer, more, others, none."""
    tensors = [t for t in _tensors(draft) if not t.external_data]
    if not tensors:
        return None
    tensor = one(rng, tensors)
    raw = tensor.raw_data or onnx.numpy_helper.to_array(tensor).tobytes()
    how = one(rng, ("fewer", "more", "random", "none", "ones"))
    tensor.raw_data = {
        "fewer": raw[: int(rng.integers(len(raw) + 1))],
        "more": raw + bytes(int(rng.integers(1, 64))),
        "random": rng.integers(0, 256, len(raw), np.uint8).tobytes(),
        "none": b"",
        "ones": b"\xff" * len(raw),
    }[how]
    return f"{tensor.name[:30]!r} has {how} bytes"


@change
def an_external_weight(rng: Random, draft: Draft) -> str | None:
    """Where a weight in another file is said to be."""
    tensors = [t for t in draft.model.graph.initializer if t.external_data]
    if not tensors:
        return None
    tensor = one(rng, tensors)
    entry = one(rng, tensor.external_data)
    paths = ("", ".", "..", "/etc/passwd", "../../etc/passwd", "none.weights", "/dev/zero", "\0")
    numbers = (*map(str, INTEGERS), "x", "", "1e9", "٣", str(1 << 64))
    how = one(rng, ("value", "value", "value", "gone", "doubled", "unaligned"))
    if how == "value":
        entry.value = one(rng, (*paths, "model.onnx") if entry.key == "location" else numbers)
    elif how == "gone":
        tensor.external_data.remove(entry)
    elif how == "doubled":
        tensor.external_data.add().CopyFrom(entry)
    else:
        entry.value = str(int(rng.integers(1, 64))) if entry.key != "location" else entry.value
    return f"{tensor.name[:30]!r}'s {entry.key} is {entry.value[:30]!r}, {how}"


@change
def the_weights_file(rng: Random, draft: Draft) -> str | None:
    """The weights file cut short, emptied, or with other bytes in it."""
    if not draft.weights:
        return None
    size = len(draft.weights)
    how = one(rng, ("cut", "empty", "longer", "other"))
    if how == "cut":
        draft.weights = draft.weights[: int(rng.integers(size))]
    elif how == "empty":
        draft.weights = b""
    elif how == "longer":
        draft.weights += bytes(5000)
    else:
        data = np.frombuffer(draft.weights, np.uint8).copy()
        data[rng.integers(0, size, 32)] = rng.integers(0, 256, 32, np.uint8)
        draft.weights = data.tobytes()
    return f"the weights file: {how}"


@change
def the_metadata(rng: Random, draft: Draft) -> str | None:
    """What a model tells a session of its states and per-call values."""
    entries = draft.model.metadata_props
    if not entries:
        return None
    entry = one(rng, entries)
    how = one(rng, ("leaf", "leaf", "leaf", "gone", "text", "deep", "doubled"))
    if how == "gone":
        entries.remove(entry)
    elif how == "text":
        entry.value = one(rng, (*TEXTS, "null", "NaN", "{}", "[]", "[[]]", "-1", "1e999", "[1,"))
    elif how == "deep":
        entry.value = "[" * 100_000
    elif how == "doubled":
        entries.add(key=entry.key, value=one(rng, entries).value)
    else:
        try:
            content = json.loads(entry.value)
        except ValueError:
            content = entry.value
        entry.value = json.dumps(_with_another_leaf(rng, content))
    return f"metadata {entry.key}: {how}"


def _with_another_leaf(rng: Random, content: Any) -> Any:
    """JSON with one of its parts another; a part nearer the leaves is likelier."""
    if isinstance(content, dict) and content and rng.random() < 0.9:
        key = one(rng, sorted(content))
        if rng.random() < 0.15:
            return {k: v for k, v in content.items() if k != key}
        if rng.random() < 0.1:
            return {**content, one(rng, TEXTS): content[key]}
        return {**content, key: _with_another_leaf(rng, content[key])}
    if isinstance(content, list) and content and rng.random() < 0.9:
        place = int(rng.integers(len(content)))
        if rng.random() < 0.2:
            return content * 2 if rng.random() < 0.5 else content[:place]
        return [*content[:place], _with_another_leaf(rng, content[place]), *content[place + 1 :]]
    odd: list[Any] = [*INTEGERS, *TEXTS, None, True, 8.5, float("nan"), [], {}, [[1]], {"a": 1}]
    return one(rng, odd)


@change
def some_bytes(rng: Random, draft: Draft) -> str | None:
    """A few bytes of the model's file."""
    data = bytearray(draft.model.SerializeToString())
    for _ in range(64):
        changed = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
        try:
            draft.model = onnx.ModelProto.FromString(bytes(changed))
        except Exception:  # protobuf's own error: no reader of ours sees such a file
            continue
        draft.ambiguous = True
        return "bytes of the file"
    return None
