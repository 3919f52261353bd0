"""Models for the tests of the NPU: LFM2's short convolution, and a Llama of two layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from design_compiler import COMPILER

from onnx_iron import Graph, export
from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.graph import Handle, Value, Weight
from onnx_iron.kernels.designs import Target
from onnx_iron.models.decoder import Shape
from onnx_iron.models.families.llama import LlamaConfig, build
from onnx_iron.models.rope import Rope
from onnx_iron.models.weights import Weights
from onnx_iron.provider.devices.npu.build import Outcome, build_plans, plans_of

WIDTH, CHUNK = 128, 16


def random(*shape: int, seed: int = 0, dtype: Any = BFLOAT16) -> Array:
    """Weights of a size that keeps activations near 1."""
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return (numbers / np.sqrt(shape[-1])).astype(dtype)


class ShortConv(Graph):
    """LFM2's block: norm, a projection to two gates and a signal, a short causal filter between
    the gates, a projection back, and the residual.
    """

    def __init__(self, width: int = WIDTH, chunk: int = CHUNK, dtype: Any = BFLOAT16) -> None:
        self.norm = (1 + np.random.default_rng(9).standard_normal(width) / 10).astype(dtype)
        self.into = [random(width, width, seed=i, dtype=dtype) for i in range(3)]
        self.out = random(width, width, seed=3, dtype=dtype)
        self.taps = random(3, width, seed=4, dtype=dtype) * dtype.type(width**0.5)
        self.conv = F.conv_state(3, width, chunk, dtype)

    def body(self, x: Handle, *, rows: Value) -> Handle:
        x = x[:rows] if x.shape[0] > 1 else x
        h = F.rms_norm(x, x.shape[-1:], self.norm)
        before, after, signal = (F.linear(h, w, precision=F.Precision.HIGHEST) for w in self.into)
        h = after * F.causal_conv1d(before * signal, self.taps, self.conv)
        return x + F.linear(h, self.out, precision=F.Precision.HIGHEST)


def export_short_conv(
    folder: Path, width: int = WIDTH, dtype: Any = BFLOAT16, **options: Any
) -> Path:
    """Write its prefill and decode models; inputs, outputs and the state are of the weights' dtype
    where the options of ``export`` don't say otherwise.
    """
    graph = ShortConv(width, CHUNK, dtype)
    versions = {
        "prefill": graph.trace(x=((CHUNK, width), dtype)),
        "decode": graph.trace(x=((1, width), dtype)),
    }
    export(versions, folder, **{"io_dtype": None, "state_dtype": None, **options})
    return folder


SMALL_LLAMA = LlamaConfig(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=256,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope=Rope(32, 10000.0),
    tie_embeddings=True,
    context_length=256,
)


def small_llama_weight(name: str) -> Weight:
    """A random weight of the small Llama."""
    config = SMALL_LLAMA
    kv = config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "embed_tokens": (config.vocab_size, hidden),
        "k_proj": (kv, hidden),
        "v_proj": (kv, hidden),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }
    kind = name.split(".")[-2]
    if kind.endswith("norm"):
        return Weight.of(np.ones(hidden, BFLOAT16))
    shape = shapes.get(kind, (hidden, hidden))
    return Weight.of(random(*shape, seed=sum(name.encode()), dtype=BFLOAT16))


def export_small_llama(folder: Path, context: int = 192) -> Path:
    """Write the prefill and decode models of a small Llama."""
    return export_decoder(folder, SMALL_LLAMA, small_llama_weight, Shape(context, CHUNK))


def export_decoder(
    folder: Path, config: LlamaConfig, weight: Callable[[str], Weight], shape: Shape
) -> Path:
    """Write the prefill and decode models of a Llama with weights by their names."""
    graph = build(config, Weights(weight, BFLOAT16, "a test's Llama"), shape)
    metadata = {"onnx_iron.context": str(shape.context)}
    export(graph.traces(), folder, state_dtype=None, metadata=metadata)
    return folder


def build_for(folder: Path, target: str) -> Outcome:
    """Build a folder's designs for the simulated NPU."""
    device = Target(target)
    plans = [
        plan for path in sorted(folder.glob("*.onnx")) for plan in plans_of(path, device, COMPILER)
    ]
    return build_plans(plans, device, COMPILER, 2, lambda *_: None)
