"""Small random models as GGUF files, as llama.cpp's converter writes each architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from checkpoints import VOCABULARY
from gguf.constants import MODEL_ARCH_NAMES
from gguf.tensor_mapping import get_tensor_name_map

HEAD_DIM, CONTEXT = 16, 512


def write_model(path: Path, architecture: str, model: Any, **changes: Any) -> Path:
    """The file of a model; ``changes`` are further keys, by the name below the architecture's."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(min(CONTEXT, config.max_position_embeddings))
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(VOCABULARY)
    _KEYS.get(architecture, _plain)(writer, config, model)
    for name, value in changes.items():
        _ADD[type(value)](writer, f"{architecture}.{name.replace('__', '.')}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(0)
    for name, array in tensors(architecture, model).items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(architecture: str, model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """GGUF's tensors: its names, no dimensions of one, and what the converter does to some."""
    config = model.config
    kinds = {name: kind for kind, name in MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    found = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.float().numpy().squeeze()
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        if architecture == "granite" and ".self_attn.q_proj." in name:
            array = _paired(array, config.num_attention_heads)
        if architecture == "granite" and ".self_attn.k_proj." in name:
            array = _paired(array, config.num_key_value_heads)
        found[names.get_name(name, (".weight", ".bias"))] = array
    rope = config.rope_parameters or {}
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            factors = np.array(rope[f"{length}_factor"], np.float32)
            found[f"rope_factors_{length}.weight"] = factors
    return found


def _paired(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows i and i + dim / 2 of each head side by side."""
    halves = array.reshape(heads, 2, -1, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def _plain(writer: Any, config: Any, model: Any) -> None:
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])


def _lfm2(writer: Any, config: Any, model: Any) -> None:
    writer.add_feed_forward_length(model.model.layers[0].feed_forward.w1.out_features)
    kinds = config.layer_types
    counts = [config.num_key_value_heads if k == "full_attention" else 0 for k in kinds]
    writer.add_array("lfm2.attention.head_count_kv", counts)
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])


def _granite(writer: Any, config: Any, model: Any) -> None:
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def _phi3(writer: Any, config: Any, model: Any) -> None:
    rope, length = config.rope_parameters, config.max_position_embeddings
    original = rope.get("original_max_position_embeddings", config.original_max_position_embeddings)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(HEAD_DIM * rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "longrope":
        factor = math.sqrt(1 + math.log(length / original) / math.log(original))
        writer.add_rope_scaling_attn_factors(factor)


def _gemma2(writer: Any, config: Any, model: Any) -> None:
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)


def _gemma3(writer: Any, config: Any, model: Any) -> None:
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    full = config.rope_parameters["full_attention"]
    writer.add_rope_freq_base(full["rope_theta"])
    if full["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if "sliding_attention" in config.layer_types:
        writer.add_sliding_window(config.sliding_window)


_KEYS: Mapping[str, Callable[[Any, Any, Any], None]] = {
    "lfm2": _lfm2,
    "granite": _granite,
    "phi3": _phi3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
}
_ADD: Mapping[type, Callable[..., None]] = {
    bool: gguf.GGUFWriter.add_bool,
    int: gguf.GGUFWriter.add_uint32,
    float: gguf.GGUFWriter.add_float32,
    list: gguf.GGUFWriter.add_array,
}
