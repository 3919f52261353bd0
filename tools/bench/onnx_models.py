"""Language models as other exporters write them, of onnx's own operators and com.microsoft's, with
random float32 weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Size:
    """A decoder's: ``width`` of the hidden state, ``inner`` of the gated product."""

    width: int
    inner: int
    layers: int
    heads: int
    groups: int
    vocabulary: int
    context: int

    @classmethod
    def of(cls, config: Any, context: int) -> Size:
        """A ``DecoderConfig``'s."""
        return cls(
            config.hidden_size,
            config.intermediate_size,
            config.num_layers,
            config.num_heads,
            config.num_kv_heads,
            config.vocab_size,
            context,
        )

    @property
    def head(self) -> int:
        """A head's width."""
        return self.width // self.heads


class Builder:
    """Nodes and weights as they are added."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weight(self, name: str, *shape: int) -> str:
        """Random numbers that keep a sum's size; ones for a vector."""
        array = np.ones(shape, np.float32)
        if len(shape) > 1:
            array = self._random.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)
        return self.constant(name, array)

    def constant(self, name: str, array: Any) -> str:
        """An initializer of this content."""
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(
        self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **more: Any
    ) -> str:
        """Add a node; returns its first output."""
        self.nodes.append(
            helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **more)
        )
        return outputs[0]

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        """``x`` by a new matrix (rows, columns)."""
        return self.node("MatMul", [x, self.weight(f"{name}.weight", rows, columns)], [name])


def decoder(size: Size, attention: str) -> onnx.ModelProto:
    """A decoder of logits for the last row.

    Args:
        attention: "GroupQueryAttention", with caches that may be shared buffers, as
            onnxruntime-genai's builder writes it, or "Attention", onnx's own with RotaryEmbedding
            and a mask, whose caches grow.
    """
    b = Builder()
    shared = attention == "GroupQueryAttention"
    angles = np.outer(
        np.arange(size.context), 1e4 ** -(np.arange(0, size.head, 2) / size.head)
    ).astype(np.float32)
    b.constant("cosines", np.cos(angles))
    b.constant("sines", np.sin(angles))
    inputs, outputs = _ports(size, shared)
    if not shared:
        _mask(b)
    table = b.weight("table", size.vocabulary, size.width)
    x = b.node("Gather", [table, "input_ids"], ["embedded"])
    norm = b.weight("norm.0", size.width)
    n = b.node("SimplifiedLayerNormalization", [x, norm], ["n.0"], axis=-1, epsilon=1e-5)
    for layer in range(size.layers):
        name = f"layers.{layer}"
        y = (_group_query if shared else _attention)(b, size, layer, n)
        y = b.product(y, f"{name}.o", size.width, size.width)
        n, x = _skip(b, y, x, f"{name}.middle", size.width)
        gate = b.product(n, f"{name}.gate", size.width, size.inner)
        up = b.product(n, f"{name}.up", size.width, size.inner)
        one = b.node("Sigmoid", [gate], [f"{name}.sigmoid"])
        both = b.node("Mul", [gate, one], [f"{name}.silu"])
        y = b.node("Mul", [both, up], [f"{name}.gated"])
        y = b.product(y, f"{name}.down", size.inner, size.width)
        n, x = _skip(b, y, x, f"{name}.last", size.width)
    for name, content in (("begin", [-1]), ("end", [1 << 62]), ("axis", [1])):
        b.constant(name, np.array(content, np.int64))
    last = b.node("Slice", [n, "begin", "end", "axis"], ["last_row"])
    b.node("MatMul", [last, b.weight("head.weight", size.width, size.vocabulary)], ["logits"])
    graph = helper.make_graph(b.nodes, attention, inputs, outputs, b.weights)
    opsets = [helper.make_opsetid("", 21 if shared else 23), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model with its weights beside it."""
    onnx.save_model(
        model, path, save_as_external_data=True, location=path.name + ".data", size_threshold=1024
    )
    return path


def _ports(size: Size, shared: bool) -> tuple[list[Any], list[Any]]:
    ids, number = TensorProto.INT64, TensorProto.INT32
    inputs = [helper.make_tensor_value_info("input_ids", ids, ["batch", "sequence"])]
    if shared:
        inputs.append(helper.make_tensor_value_info("seqlens_k", number, ["batch"]))
        inputs.append(helper.make_tensor_value_info("total_sequence_length", number, []))
    else:
        inputs.append(helper.make_tensor_value_info("position_ids", ids, ["batch", "sequence"]))
    logits: list[int | str] = ["batch", 1, size.vocabulary]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)]
    for layer in range(size.layers):
        for what in ("key", "value"):
            for ports, name, length in (
                (inputs, f"past_key_values.{layer}.{what}", "past_sequence_length"),
                (outputs, f"present.{layer}.{what}", "total_sequence_length"),
            ):
                shape: list[int | str] = ["batch", size.groups, length, size.head]
                ports.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return inputs, outputs


def _skip(b: Builder, y: str, x: str, name: str, width: int) -> tuple[str, str]:
    """The norm of a sum, and the sum."""
    inputs = [y, x, b.weight(f"{name}.norm", width)]
    outputs = [f"{name}.n", "", "", f"{name}.sum"]
    made = b.node("SkipSimplifiedLayerNormalization", inputs, outputs, MICROSOFT, epsilon=1e-5)
    return made, outputs[3]


def _projections(b: Builder, size: Size, layer: int, n: str) -> list[str]:
    columns = {"q": size.heads, "k": size.groups, "v": size.groups}
    return [
        b.product(n, f"layers.{layer}.{name}", size.width, heads * size.head)
        for name, heads in columns.items()
    ]


def _caches(layer: int) -> tuple[list[str], list[str]]:
    return (
        [f"past_key_values.{layer}.{what}" for what in ("key", "value")],
        [f"present.{layer}.{what}" for what in ("key", "value")],
    )


def _group_query(b: Builder, size: Size, layer: int, n: str) -> str:
    past, present = _caches(layer)
    further = ["seqlens_k", "total_sequence_length", "cosines", "sines"]
    return b.node(
        "GroupQueryAttention",
        [*_projections(b, size, layer, n), *past, *further],
        [f"layers.{layer}.attended", *present],
        MICROSOFT,
        num_heads=size.heads,
        kv_num_heads=size.groups,
        do_rotary=1,
    )


def _attention(b: Builder, size: Size, layer: int, n: str) -> str:
    past, present = _caches(layer)
    q, k, v = _projections(b, size, layer, n)
    turned = [
        b.node(
            "RotaryEmbedding",
            [name, "cosines", "sines", "position_ids"],
            [f"{name}.turned"],
            num_heads=heads,
        )
        for name, heads in ((q, size.heads), (k, size.groups))
    ]
    return b.node(
        "Attention",
        [*turned, v, "mask", *past],
        [f"layers.{layer}.attended", *present],
        q_num_heads=size.heads,
        kv_num_heads=size.groups,
    )


def _mask(b: Builder) -> None:
    """Which keys each row sees: those up to its own position."""
    zero = b.constant("zero", np.array(0, np.int64))
    one = b.constant("one", np.array(1, np.int64))
    b.constant("last_axis", np.array([-1], np.int64))
    past = b.node("Shape", ["past_key_values.0.key"], ["past_length"], start=2, end=3)
    new = b.node("Shape", ["input_ids"], ["new_length"], start=1, end=2)
    total = b.node("Squeeze", [b.node("Add", [past, new], ["lengths"])], ["total"])
    keys = b.node("Range", [zero, total, one], ["keys"])
    rows = b.node("Unsqueeze", ["position_ids", "last_axis"], ["rows"])
    seen = b.node("LessOrEqual", [keys, rows], ["seen"])
    b.node("Unsqueeze", [seen, b.constant("head_axis", np.array([1], np.int64))], ["mask"])
