"""Small random checkpoints of every family, as transformers' ``save_pretrained`` writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCABULARY = 97
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "attn_implementation": "eager"}
GEMMA3 = ["sliding_attention", "full_attention", "sliding_attention"]


@dataclass(frozen=True)
class Small:
    """A model to make: its configuration's class, what differs from ``SIZES``, and its class."""

    config: str
    model: str
    changes: Mapping[str, Any]


def _lfm2(*layers: str, **changes: Any) -> Small:
    types = {"layer_types": list(layers), "num_hidden_layers": len(layers)}
    return Small("Lfm2Config", "Lfm2ForCausalLM", {**types, "block_multiple_of": 16, **changes})


def _mamba(**changes: Any) -> Small:
    no_heads = {"num_attention_heads": None, "num_key_value_heads": None}
    return Small("MambaConfig", "MambaForCausalLM", {**no_heads, "state_size": 8, **changes})


SMALL: Mapping[str, Small] = {
    "llama": Small("LlamaConfig", "LlamaForCausalLM", {"head_dim": 8}),
    "llama tied": Small("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama with biases": Small(
        "LlamaConfig", "LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}
    ),
    "llama 3": Small(
        "LlamaConfig",
        "LlamaForCausalLM",
        {"max_position_embeddings": 512, "rope_parameters": LLAMA3},
    ),
    "llama, yarn": Small(
        "LlamaConfig",
        "LlamaForCausalLM",
        {"max_position_embeddings": 512, "rope_parameters": YARN},
    ),
    "qwen2": Small("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": Small("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 16}),
    "mistral": Small("MistralConfig", "MistralForCausalLM", {"sliding_window": None}),
    "mistral with a window": Small(
        "MistralConfig", "MistralForCausalLM", {"sliding_window": 12, "head_dim": 16}
    ),
    "phi3": Small("Phi3Config", "Phi3ForCausalLM", {"pad_token_id": 0}),
    "phi3, a part of each head turned": Small(
        "Phi3Config",
        "Phi3ForCausalLM",
        {
            "pad_token_id": 0,
            "hidden_size": 96,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "phi3, longrope": Small(
        "Phi3Config",
        "Phi3ForCausalLM",
        {
            "pad_token_id": 0,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 1024,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0, 1.1, 1.3, 2.0],
                "long_factor": [1.0, 2.0, 4.0, 8.0],
            },
        },
    ),
    "gemma2": Small(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 16, **GEMMA},
    ),
    "gemma3": Small(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            "head_dim": 16,
            "sliding_window": 12,
            "num_hidden_layers": 3,
            "layer_types": GEMMA3,
            **GEMMA,
        },
    ),
    "granite": Small(
        "GraniteConfig",
        "GraniteForCausalLM",
        {
            "embedding_multiplier": 12.0,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
        },
    ),
    "mamba": _mamba(),
    "mamba with biases, untied": _mamba(
        state_size=5,
        conv_kernel=2,
        use_bias=True,
        use_conv_bias=False,
        time_step_rank=7,
        tie_word_embeddings=False,
        residual_in_fp32=False,
    ),
    "falcon_mamba": dataclasses.replace(
        _mamba(mixer_rms_eps=1e-4),
        config="FalconMambaConfig",
        model="FalconMambaForCausalLM",
    ),
    "lfm2": _lfm2("conv", "full_attention", "conv"),
    "lfm2 of convolutions only": _lfm2("conv", "conv", conv_L_cache=2),
    "lfm2 with biases, untied": _lfm2(
        *("conv", "conv", "full_attention"),
        conv_bias=True,
        conv_L_cache=4,
        tie_word_embeddings=False,
        block_auto_adjust_ff_dim=False,
    ),
}


def random_model(small: Small) -> Any:
    """A transformers model whose weights make every part of it count."""
    torch.manual_seed(0)
    config = getattr(transformers, small.config)(**{**SIZES, **small.changes})
    model = getattr(transformers, small.model)(config).eval()
    for name, weight in model.named_parameters():
        mean, spread = (1.0, 0.3) if "norm" in name else (0.0, weight.shape[-1] ** -0.5)
        torch.nn.init.normal_(weight, mean, spread if weight.ndim > 1 else 0.3)
    return model


def saved(model: Any, folder: Path, **options: Any) -> Path:
    """The folder that ``save_pretrained`` writes."""
    model.save_pretrained(folder, **options)
    return folder


def prompt(length: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Ids of the small vocabulary."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).astype(np.int32)


def logits_of(model: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """transformers' logits (len(ids), vocabulary), in float32."""
    with torch.inference_mode():
        return np.asarray(model(torch.tensor(ids[None]).long(), use_cache=False).logits[0].float())


Exported = Callable[..., Path]
