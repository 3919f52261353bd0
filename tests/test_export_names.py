"""The names of an exported model's nodes and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compare import assert_same_bits
from networks import Exported, Network, numbered, random, traced

from onnx_iron import Handle, Precision, Value, Weight, state
from onnx_iron import functional as F
from onnx_iron.dtypes import FLOAT32, INT32
from onnx_iron.models.llama import Llama, LlamaConfig
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
    rope_theta=1e4,
    rope_interleaved=True,
    tie_embeddings=True,
    context_length=32,
)
SIZES = {
    "token_embd": (50, 16),
    "attn_k": (8, 16),
    "attn_v": (8, 16),
    "ffn_gate": (24, 16),
    "ffn_up": (24, 16),
    "ffn_down": (16, 24),
}


def llama() -> Llama:
    def weight(name: str) -> Weight:
        part = name.removesuffix(".weight").split(".")[-1]
        return Weight.of(random(*SIZES.get(part, (16,) if "norm" in part else (16, 16))))

    return Llama(CONFIG, weight, context=8)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.name for node in model.graph.node if node.domain == DOMAIN]
