"""The names of an exported model's nodes and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compare import assert_same_bits
from networks import Exported, Network, numbered, random, traced

from onnx_iron import Handle, Value, Weight, state
from onnx_iron import functional as F
from onnx_iron.dtypes import INT32
from onnx_iron.models.decoder import Decoder, Shape
from onnx_iron.models.families.llama import LlamaConfig, build
from onnx_iron.models.rope import Rope
from onnx_iron.models.weights import Weights
from onnx_iron.operators import DOMAIN

CONFIG = LlamaConfig(
    vocab_size=50,
    hidden_size=16,
    intermediate_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    rms_norm_eps=1e-5,
    rope=Rope(4, 1e4),
    rope_interleaved=True,
    tie_embeddings=True,
    context_length=32,
)
SIZES = {
    "embed_tokens": (50, 16),
    "k_proj": (8, 16),
    "v_proj": (8, 16),
    "gate_proj": (24, 16),
    "up_proj": (24, 16),
    "down_proj": (16, 24),
}


def llama() -> Decoder:
    def weight(name: str) -> Weight:
        part = name.removesuffix(".weight").split(".")[-1]
        return Weight.of(random(*SIZES.get(part, (16,) if "norm" in part else (16, 16))))

    return build(CONFIG, Weights(weight, np.float32, "a model"), Shape(8))


def names(model: onnx.ModelProto) -> list[str]:
    return [node.name for node in model.graph.node if node.domain == DOMAIN]


ATTENTION = (
    *("k_proj", "rope", "keys.write", "v_proj", "values.write", "q_proj", "rope_1", "attention"),
    *("o_proj", "add"),
)
LAYER = (
    "input_layernorm",
    *(f"self_attn.{part}" for part in ATTENTION),
    "post_attention_layernorm",
    *(f"mlp.{part}" for part in ("gate_proj", "silu", "up_proj", "mul", "down_proj", "add")),
)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_node_has_its_weight_s_path_or_its_layer_and_its_function(rows: int) -> None:
    model = Exported(llama().trace(input_ids=((rows,), INT32))).model
    last = ["layers.1.mlp.add.narrow"] if rows > 1 else []
    assert names(model) == [
        *("rope.default.narrow", "embed_tokens"),
        *(f"layers.{layer}.{part}" for layer in range(2) for part in LAYER),
        *(*last, "norm", "embed_tokens_1"),
    ]
    results = {node.name: node.output[0] for node in model.graph.node}
    assert results["layers.0.mlp.gate_proj"] == "layers.0.mlp.gate_proj"
    assert results["layers.0.mlp.silu"] == "layers.0.mlp.silu"
    every = [node.name for node in model.graph.node]
    assert len(set(every)) == len(every)


def test_a_path_loses_its_weight_at_the_end_and_numbers_count_for_no_layer() -> None:
    def body(self: Any, x: Handle) -> Handle:
        x = F.silu(x * self.part["norm"]["weight"])
        return F.gelu(x * 2 + self.part["norm"]["bias"])

    part = {"norm": {"weight": random(8), "bias": random(8)}}
    model = Exported(traced(body, part=part)).model
    assert names(model) == [
        "part.norm",
        "part.silu",
        "part.mul",
        "part.norm.bias",
        "part.norm.gelu",
    ]
    assert model.graph.node[0].output[0] == "part.norm"


def test_names_that_steps_and_weights_would_share_are_told_apart() -> None:
    """A second node of the weight a is a_1, which is a weight's path too."""

    def body(self: Any, x: Handle) -> Handle:
        y = F.causal_conv1d(x * self.a * self.a * self.a_1, self.c["weight"], self.kept)
        return y * self.c["new_state"]

    filters = {"weight": random(3, 8, seed=2), "new_state": random(8, seed=3)}
    kept = F.conv_state(3, 8, 4, np.float32)
    graph = Network(body, a=random(8), a_1=random(8, seed=1), c=filters, kept=kept)
    model = Exported(graph.trace(x=((1, 8), np.float32)))
    assert names(model.model) == ["a", "a_1", "a_1_1", "c", "c.new_state_1"]
    assert_same_bits(model(x=numbered(1, 8))["output"], graph.reference(numbered(1, 8)))


@pytest.mark.parametrize("kind", ["reshape", "transpose", "bound"])
def test_five_thousand_views_in_a_row_are_one(kind: str) -> None:
    def body(self: Any, x: Handle, *, n: Any) -> Handle:
        view = x + 0
        for i in range(5000):
            if kind == "reshape":
                view = view.reshape(8, 4) if i % 2 else view.reshape(2, 16)
            elif kind == "transpose":
                view = view.transpose(1, 0, 2) if i % 2 else view.transpose(0, 2, 1)
            else:
                view = view[:n]
        self.kept[...] = view.copy().reshape(32)
        return view.copy()

    graph = Network(body, kept=state((32,), np.float32))
    x = numbered(4, 4, 2)
    model = Exported(graph.trace(x=(x.shape, np.float32)))
    expected = graph.reference(x, n=4)
    assert_same_bits(model(x=x, n=4)["output"], expected)
    if kind == "transpose":
        exact = x
        for i in range(5000):
            exact = exact.transpose((1, 0, 2) if i % 2 else (0, 2, 1))
        assert_same_bits(expected, exact)
    assert_same_bits(model.states["kept"], expected.reshape(32))


def test_quotients_of_quotients_are_refused_beyond_what_a_session_reads() -> None:
    value = Value.named("n")
    for _ in range(16):
        value = (value + 1) // 2
    with pytest.raises(ValueError, match="divided, or compared, 17 times in a row; 16 is the most"):
        (value + 1) // 2
