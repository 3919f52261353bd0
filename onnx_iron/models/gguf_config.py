"""The Llama configuration in a GGUF file's metadata, and the tensors that it asks for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from onnx_iron.models.gguf_header import Header, TensorInfo
from onnx_iron.models.llama import LlamaConfig

ARCHITECTURE = "llama"
# The tensor of what each rotary frequency is divided by, in Llama 3.1 and later.
ROPE_FACTORS = "rope_freqs.weight"

# Keys that the configuration is made of, and two that only tell how the model was made.
_READ = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "vocab_size",
    }
)
# Keys that would change what is computed, each with the values that change nothing. Any other key
# of the architecture is refused, for nobody knows what it changes.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0.0,),
    "hidden_activation": ("silu",),
    "logit_scale": (0.0, 1.0),
    "pooling_type": (0,),
    "residual_scale": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
    "rope.scaling.alpha": (0.0, 1.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_beta_fast": (32.0,),
    "rope.scaling.yarn_beta_slow": (1.0,),
    "rope.scaling.yarn_ext_factor": (-1.0, 0.0),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "tensor_data_layout": ("reference", "Meta AI original pth"),
    "use_parallel_residual": (False,),
}
# Of every architecture: what the tensors are, and how those that are quantised are stored.
_GENERAL: dict[str, Any] = {"general.type": "model", "general.quantization_version": 2}


def read_config(header: Header, source: str) -> LlamaConfig:
    """Read the configuration, and hold every tensor's shape against it.

    Raises:
        ValueError: Another architecture; a key or tensor that is missing, or whose value, type or
            shape doesn't fit the others; a key or tensor that asks for what isn't implemented.
    """
    keys = _Keys(header.metadata, source)
    architecture = keys.any("general.architecture", str)
    if architecture != ARCHITECTURE:
        raise keys.error(
            "general.architecture", architecture, f"{ARCHITECTURE!r}; convert a Llama model"
        )
    _check_keys(header.metadata, keys)
    hidden, heads = keys.size("embedding_length"), keys.size("attention.head_count")
    kv_heads = keys.size("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise keys.error(
            f"{ARCHITECTURE}.attention.head_count_kv", kv_heads, f"a divisor of {heads} heads"
        )
    head_dim = keys.size("attention.key_length", hidden // heads)
    if head_dim < 2 or head_dim % 2:
        raise keys.error(
            f"the head size (by {ARCHITECTURE}.attention.key_length, or embedding_length over "
            "attention.head_count)",
            head_dim,
            "an even number, for rotary embedding",
        )
    for name in ("attention.value_length", "rope.dimension_count"):
        if keys.size(name, head_dim) != head_dim:
            raise keys.error(
                f"{ARCHITECTURE}.{name}", keys.size(name), f"the head size, {head_dim}"
            )

    tensors = header.tensors
    embedding = _tensor(tensors, "token_embd.weight", source)
    vocabulary = keys.size("vocab_size", embedding.shape[0])
    tokens = header.metadata.get("tokenizer.ggml.tokens", ())
    if isinstance(tokens, list) and len(tokens) > vocabulary:
        raise keys.error(
            "the length of tokenizer.ggml.tokens",
            len(tokens),
            f"{vocabulary} at most ({ARCHITECTURE}.vocab_size, or the rows of token_embd.weight)",
        )
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=keys.size("feed_forward_length"),
        num_layers=keys.size("block_count"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=keys.positive("attention.layer_norm_rms_epsilon"),
        rope_theta=keys.positive("rope.freq_base", 10000.0),
        rope_interleaved=True,
        tie_embeddings="output.weight" not in tensors,
        context_length=keys.size("context_length"),
    )
    factor = _linear_factor(header, keys)
    _check_tensors(config, tensors, keys)
    # Only now is the head size known to be that of a tensor.
    factors = None if factor is None else (factor,) * (head_dim // 2)
    return dataclasses.replace(config, rope_factors=factors)


def expected_tensors(config: LlamaConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the (out, in) shape of every tensor of a Llama model."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield "token_embd.weight", (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        for name, shape in {
            "attn_norm": (hidden,),
            "attn_q": (queries, hidden),
            "attn_k": (keys, hidden),
            "attn_v": (keys, hidden),
            "attn_output": (hidden, queries),
            "ffn_norm": (hidden,),
            "ffn_gate": (inner, hidden),
            "ffn_up": (inner, hidden),
            "ffn_down": (hidden, inner),
        }.items():
            yield f"blk.{layer}.{name}.weight", shape
    yield "output_norm.weight", (hidden,)
    if not config.tie_embeddings:
        yield "output.weight", (config.vocab_size, hidden)


class _Keys:
    """Metadata read with its type checked."""

    def __init__(self, metadata: Mapping[str, Any], source: str) -> None:
        self.metadata = metadata
        self.source = source

    def error(self, what: str, value: Any, expected: str) -> ValueError:
        return ValueError(f"{self.source}: {what} is {_short(value)}, expected {expected}")

    def any(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.metadata.get(key, default)
        if value is None:
            raise ValueError(
                f"{self.source}: metadata key {key!r} is missing, and the model can't be built "
                "without it; convert the model again"
            )
        if type(value) is not kind:
            raise self.error(key, value, f"a value of type {kind.__name__}")
        return value

    def size(self, name: str, default: int | None = None) -> int:
        key = f"{ARCHITECTURE}.{name}"
        value: int = self.any(key, int, default)
        if not 1 <= value < 2**31:
            raise self.error(key, value, "1..2147483647")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        key = f"{ARCHITECTURE}.{name}"
        value: float = self.any(key, float, default)
        if not (math.isfinite(value) and value > 0):
            raise self.error(key, value, "a positive number")
        return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_keys(metadata: Mapping[str, Any], keys: _Keys) -> None:
    """Refuse every key that changes what a Llama model computes and isn't read."""
    for key, expected in _GENERAL.items():
        if metadata.get(key, expected) != expected:
            raise keys.error(key, metadata[key], f"{expected!r}; there is no reader for others")
    prefix = f"{ARCHITECTURE}."
    for key, value in metadata.items():
        name = key.removeprefix(prefix)
        if name == key or name in _READ:
            continue
        if name not in _NEUTRAL:
            raise keys.error(
                key, value, "no such key; what it changes in a Llama model isn't implemented"
            )
        if value not in _NEUTRAL[name]:
            raise keys.error(key, value, f"{_NEUTRAL[name][-1]!r}; the Llama graph has no other")


def _linear_factor(header: Header, keys: _Keys) -> float | None:
    """What linear scaling divides all rotary frequencies by; None where there is no scaling."""
    prefix = f"{ARCHITECTURE}.rope.scaling"
    kind = header.metadata.get(f"{prefix}.type")
    if kind == "linear":
        return keys.positive("rope.scaling.factor")
    if kind not in (None, "none"):
        raise keys.error(f"{prefix}.type", kind, "'none' or 'linear'; no other is implemented")
    factor = header.metadata.get(f"{prefix}.factor", 1.0)
    if kind is None and factor not in (0.0, 1.0):
        raise keys.error(f"{prefix}.factor", factor, f"1.0, for there is no {prefix}.type")
    return None


def _check_tensors(config: LlamaConfig, tensors: Mapping[str, TensorInfo], keys: _Keys) -> None:
    # The count is from the file: look for the last layer before walking through all of them.
    _tensor(tensors, f"blk.{config.num_layers - 1}.attn_q.weight", keys.source)
    expected = dict(expected_tensors(config)) if config.num_layers <= len(tensors) else {}
    if ROPE_FACTORS in tensors:
        expected[ROPE_FACTORS] = (config.head_dim // 2,)
    for name, shape in expected.items():
        info = _tensor(tensors, name, keys.source)
        if info.shape != shape:
            raise keys.error(f"the shape of tensor {name!r}", info.shape, f"{shape}")
    for name in tensors:
        if name not in expected:
            raise ValueError(
                f"{keys.source}: tensor {name!r} has no place in a Llama model of "
                f"{config.num_layers} layers; the file is of a variant that isn't implemented"
            )


def _tensor(tensors: Mapping[str, TensorInfo], name: str, source: str) -> TensorInfo:
    if name not in tensors:
        raise ValueError(
            f"{source}: tensor {name!r} is missing; the file is not a whole Llama model"
        )
    return tensors[name]
