"""The configuration in a GGUF file's metadata, for each architecture that has a family."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onnx_iron.models.decoder import DecoderConfig
from onnx_iron.models.families.gemma2 import GemmaConfig
from onnx_iron.models.families.granite import GraniteConfig
from onnx_iron.models.families.lfm2 import Lfm2Config
from onnx_iron.models.families.llama import LlamaConfig
from onnx_iron.models.families.mistral import MistralConfig
from onnx_iron.models.gguf_header import Header, TensorInfo
from onnx_iron.models.rope import Rope

# The tensor of what each rotary frequency is divided by, in Llama 3.1 and later.
ROPE_FACTORS = "rope_freqs.weight"
# The same for texts up to the length that Phi-3 was trained for at first, and for longer ones.
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"

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


@dataclass(frozen=True)
class Architecture:
    """How GGUF files keep a family's models.

    Attributes:
        model_type: the family.
        read: the family's configuration, of the keys, the tensors and what all have.
        keys: further keys that ``read`` reads.
        partial: rotary embedding may turn a part of each head.
    """

    model_type: str
    read: Callable[[Keys, Mapping[str, TensorInfo], dict[str, Any]], DecoderConfig]
    keys: frozenset[str] = frozenset()
    partial: bool = False


def read_config(header: Header, source: str) -> tuple[Architecture, DecoderConfig]:
    """Read the configuration.

    Raises:
        ValueError: An architecture without a family; a key that is missing, or whose value or type
            doesn't fit the others; a key that asks for what isn't implemented.
    """
    name = Keys(header.metadata, source, "").any("general.architecture", str)
    keys = Keys(header.metadata, source, name)
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        expected = " or ".join(repr(known) for known in ARCHITECTURES)
        raise keys.error("general.architecture", name, f"{expected}; convert a model of one")
    _check_keys(header.metadata, keys, _READ | architecture.keys)
    sizes = _sizes(keys, header, architecture.partial)
    return architecture, architecture.read(keys, header.tensors, sizes)


def _sizes(keys: Keys, header: Header, partial: bool) -> dict[str, Any]:
    """What all configurations have, as their arguments."""
    hidden, heads = keys.size("embedding_length"), keys.size("attention.head_count")
    layers = keys.size("block_count")
    kv_heads = _kv_heads(keys, heads, layers)
    if heads % kv_heads:
        raise keys.error(
            f"{keys.architecture}.attention.head_count_kv", kv_heads, f"a divisor of {heads} heads"
        )
    head_dim = keys.size("attention.key_length", hidden // heads)
    if head_dim < 2 or head_dim % 2:
        raise keys.error(
            f"the head size (by {keys.architecture}.attention.key_length, or embedding_length over "
            "attention.head_count)",
            head_dim,
            "an even number, for rotary embedding",
        )
    for name in ("attention.value_length", "rope.dimension_count"):
        if keys.size(name, head_dim) != head_dim and not (partial and name.startswith("rope.")):
            raise keys.error(
                f"{keys.architecture}.{name}", keys.size(name), f"the head size, {head_dim}"
            )
    turned = keys.size("rope.dimension_count", head_dim)
    if turned > head_dim or turned % 2:
        raise keys.error(
            f"{keys.architecture}.rope.dimension_count", turned, f"an even part of {head_dim}"
        )
    embedding = keys.tensor(header.tensors, "token_embd.weight")
    vocabulary = keys.size("vocab_size", embedding.shape[0])
    tokens = header.metadata.get("tokenizer.ggml.tokens", ())
    if isinstance(tokens, list) and len(tokens) > vocabulary:
        raise keys.error(
            "the length of tokenizer.ggml.tokens",
            len(tokens),
            f"{vocabulary} at most ({keys.architecture}.vocab_size, or the rows of "
            "token_embd.weight)",
        )
    # The count is from the file: look for the last layer before anybody walks through all of them.
    keys.tensor(header.tensors, f"blk.{layers - 1}.attn_norm.weight")
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "rms_norm_eps": keys.positive("attention.layer_norm_rms_epsilon"),
        "rope": Rope(turned, keys.positive("rope.freq_base", 10000.0), _linear_factor(keys)),
        "tie_embeddings": "output.weight" not in header.tensors,
        "context_length": keys.size("context_length"),
    }


def _kv_heads(keys: Keys, heads: int, layers: int) -> int:
    """The key heads: one number, or, where some layers have no attention, one for each layer."""
    key = f"{keys.architecture}.attention.head_count_kv"
    value = keys.metadata.get(key)
    if keys.architecture != "lfm2" or not isinstance(value, list):
        return keys.size("attention.head_count_kv", heads)
    counts = {count for count in value if count != 0}
    if len(value) != layers or len(counts) != 1 or any(type(n) is not int or n < 0 for n in value):
        raise keys.error(key, value, f"{layers} numbers, one for each layer, 0 or all the same")
    return int(counts.pop())


def _llama(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    """Converters order the rows of queries and keys for pairwise rotation."""
    return LlamaConfig(**sizes, rope_interleaved=True)


def _plain(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    return LlamaConfig(**sizes)


def _granite(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    """Llama's order of rows; a multiplier of 0 is as good as none."""
    finetuned = keys.any("granite.rope.scaling.finetuned", bool, True)
    if not finetuned:
        raise keys.error("granite.rope.scaling.finetuned", finetuned, "True: a model that turns")
    return GraniteConfig(
        **sizes,
        rope_interleaved=True,
        attention_bias="blk.0.attn_q.bias" in tensors,
        mlp_bias="blk.0.ffn_up.bias" in tensors,
        attention_multiplier=keys.factor("attention.scale", sizes["head_dim"] ** -0.5),
        embedding_multiplier=keys.factor("embedding_scale"),
        logits_scaling=keys.factor("logit_scale"),
        residual_multiplier=keys.factor("residual_scale"),
    )


def _phi3(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    """The factors of long texts are in tensors. The window is the checkpoint's, which llama.cpp
    leaves out of account."""
    window = keys.any("phi3.attention.sliding_window", int, 0)
    if not 0 <= window < 2**31:
        raise keys.error("phi3.attention.sliding_window", window, "0..2147483647")
    if (LONG_FACTORS in tensors) != (SHORT_FACTORS in tensors):
        raise ValueError(
            f"{keys.source}: of the tensors {LONG_FACTORS!r} and {SHORT_FACTORS!r} one is missing; "
            "convert the model again"
        )
    if LONG_FACTORS in tensors:
        scaling: dict[str, Any] = {
            "rope_type": "longrope",
            "original_max_position_embeddings": keys.size("rope.scaling.original_context_length"),
        }
        if "phi3.rope.scaling.attn_factor" in keys.metadata:
            scaling["attention_factor"] = keys.positive("rope.scaling.attn_factor")
        rope = sizes["rope"]
        sizes["rope"] = Rope(rope.dim, rope.theta, None, scaling, sizes["context_length"])
    elif keys.factor("rope.scaling.attn_factor") != 1.0:
        factor = keys.positive("rope.scaling.attn_factor")
        raise keys.error("phi3.rope.scaling.attn_factor", factor, f"1.0 without {LONG_FACTORS}")
    return MistralConfig(**sizes, window=window or None)


def _gemma2(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    return GemmaConfig(
        **sizes,
        layer_types=_windowed_layers(keys, sizes["num_layers"], 2, tensors),
        window=keys.size("attention.sliding_window", 4096),
        scale=_query_scale(sizes, layers_of_27b=46),
        attention_cap=keys.positive("attn_logit_softcapping", 50.0),
        logits_cap=keys.positive("final_logit_softcapping", 30.0),
        norm_offset=0.0,
    )


def _gemma3(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    """Windows have a rotary embedding of their own, which isn't scaled."""
    layers, window = sizes["num_layers"], keys.any("gemma3.attention.sliding_window", int, 0)
    if not 0 <= window < 2**31:
        raise keys.error("gemma3.attention.sliding_window", window, "0..2147483647")
    cap = keys.any("gemma3.final_logit_softcapping", float, 0.0)
    return GemmaConfig(
        **sizes,
        layer_types=_windowed_layers(keys, layers, 6 if window else 1, tensors),
        window=window or sizes["context_length"],
        scale=_query_scale(sizes, layers_of_27b=62),
        attention_cap=None,
        logits_cap=keys.positive("final_logit_softcapping") if cap else None,
        norm_offset=0.0,
        sliding_rope=Rope(sizes["head_dim"], keys.positive("rope.freq_base_swa", 10000.0)),
        head_norms=True,
    )


def _query_scale(sizes: Mapping[str, Any], layers_of_27b: int) -> float:
    """No key says it: Gemma's 27B models, which are known by their layers, divide by another
    size than the head's."""
    of_27b = sizes["num_layers"] == layers_of_27b
    size = sizes["hidden_size"] // sizes["num_heads"] if of_27b else sizes["head_dim"]
    return float(size**-0.5)


def _windowed_layers(
    keys: Keys, layers: int, period: int, tensors: Mapping[str, TensorInfo]
) -> tuple[str, ...]:
    """The kind of each layer: of every ``period`` all but the last have a window, unless the file
    says otherwise by another period or a flag for each layer."""
    if layers > len(tensors):
        raise keys.error(f"{keys.architecture}.block_count", layers, "as many as there are tensors")
    key = f"{keys.architecture}.attention.sliding_window_pattern"
    given = keys.metadata.get(key, period)
    if isinstance(given, list) and len(given) == layers and all(type(v) is bool for v in given):
        windows = given
    elif type(given) is int and 0 < given < 2**31:
        windows = [i % given < given - 1 for i in range(layers)]
    else:
        raise keys.error(key, given, f"an integer of 1 or more, or {layers} flags")
    return tuple("sliding_attention" if windowed else "full_attention" for windowed in windows)


def _lfm2(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: dict[str, Any]) -> DecoderConfig:
    layers = sizes["num_layers"]
    if layers > len(tensors):
        raise keys.error(f"{keys.architecture}.block_count", layers, "as many as there are tensors")
    return Lfm2Config(
        **sizes,
        conv_kernel=keys.size("shortconv.l_cache"),
        conv_bias="blk.0.shortconv.in_proj.bias" in tensors,
        layer_types=tuple(
            "conv" if f"blk.{i}.shortconv.conv.weight" in tensors else "full_attention"
            for i in range(layers)
        ),
    )


_SCALES = frozenset({"attention.scale", "embedding_scale", "logit_scale", "residual_scale"})
_WINDOWS = frozenset(
    {
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "final_logit_softcapping",
    }
)
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama", _llama),
    "qwen2": Architecture("qwen2", _plain),
    "qwen3": Architecture("qwen3", _plain),
    "lfm2": Architecture("lfm2", _lfm2, frozenset({"shortconv.l_cache"})),
    "granite": Architecture("granite", _granite, _SCALES),
    "phi3": Architecture(
        "phi3",
        _phi3,
        frozenset({"attention.sliding_window", "rope.scaling.attn_factor"}),
        partial=True,
    ),
    "gemma2": Architecture("gemma2", _gemma2, _WINDOWS | {"attn_logit_softcapping"}),
    "gemma3": Architecture("gemma3_text", _gemma3, _WINDOWS | {"rope.freq_base_swa"}),
}


class Keys:
    """Metadata read with its type checked."""

    def __init__(self, metadata: Mapping[str, Any], source: str, architecture: str) -> None:
        self.metadata = metadata
        self.source = source
        self.architecture = architecture

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
        key = f"{self.architecture}.{name}"
        value: int = self.any(key, int, default)
        if not 1 <= value < 2**31:
            raise self.error(key, value, "1..2147483647")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        key = f"{self.architecture}.{name}"
        value: float = self.any(key, float, default)
        if not (math.isfinite(value) and value > 0):
            raise self.error(key, value, "a positive number")
        return value

    def factor(self, name: str, none: float = 1.0) -> float:
        """A factor, of which 0 stands for ``none``."""
        if self.metadata.get(f"{self.architecture}.{name}", 0.0) == 0.0:
            return none
        return self.positive(name)

    def tensor(self, tensors: Mapping[str, TensorInfo], name: str) -> TensorInfo:
        if name not in tensors:
            raise ValueError(
                f"{self.source}: tensor {name!r} is missing; the file is not a whole "
                f"{self.architecture} model"
            )
        return tensors[name]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_keys(metadata: Mapping[str, Any], keys: Keys, read: frozenset[str]) -> None:
    """Refuse every key that changes what a model computes and isn't read."""
    for key, expected in _GENERAL.items():
        if metadata.get(key, expected) != expected:
            raise keys.error(key, metadata[key], f"{expected!r}; there is no reader for others")
    prefix = f"{keys.architecture}."
    for key, value in metadata.items():
        name = key.removeprefix(prefix)
        if name == key or name in read:
            continue
        what = f"a {keys.architecture} model"
        if name not in _NEUTRAL:
            raise keys.error(
                key, value, f"no such key; what it changes in {what} isn't implemented"
            )
        if value not in _NEUTRAL[name]:
            raise keys.error(key, value, f"{_NEUTRAL[name][-1]!r}; {what} here has no other")


def _linear_factor(keys: Keys) -> float | None:
    """What linear scaling divides all rotary frequencies by; None where there is no scaling."""
    prefix = f"{keys.architecture}.rope.scaling"
    kind = keys.metadata.get(f"{prefix}.type")
    if kind == "linear":
        return keys.positive("rope.scaling.factor")
    if kind not in (None, "none"):
        raise keys.error(f"{prefix}.type", kind, "'none' or 'linear'; no other is implemented")
    factor = keys.metadata.get(f"{prefix}.factor", 1.0)
    if kind is None and factor not in (0.0, 1.0):
        raise keys.error(f"{prefix}.factor", factor, f"1.0, for there is no {prefix}.type")
    return None
