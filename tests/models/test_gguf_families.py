"""GGUF files of every architecture that has a family, against llama.cpp on the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from checkpoints import SMALL, VOCABULARY, Small, logits_of, prompt, random_model
from gguf.constants import MODEL_ARCH_NAMES
from gguf.tensor_mapping import get_tensor_name_map

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
CASES = {
    "qwen2": SMALL["qwen2"],
    "qwen3": SMALL["qwen3"],
    "lfm2": SMALL["lfm2"],
}


def resized(small: Small) -> Small:
    """With rows that llama.cpp takes, multiples of 32."""
    return Small(small.config, small.model, {**small.changes, **SIZES, "head_dim": 16})


def write(path: Path, architecture: str, model: Any) -> Path:
    """The model as llama.cpp's converter writes it: GGUF's names, no dimensions of one."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(
        model.model.layers[0].feed_forward.w1.out_features
        if architecture == "lfm2"
        else config.intermediate_size
    )
    writer.add_head_count(config.num_attention_heads)
    if architecture == "lfm2":
        kinds = config.layer_types
        counts = [config.num_key_value_heads if k == "full_attention" else 0 for k in kinds]
        writer.add_array(f"{architecture}.attention.head_count_kv", counts)
        writer.add_shortconv_l_cache(config.conv_L_cache)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(16)
        writer.add_value_length(16)
    eps = config.norm_eps if architecture == "lfm2" else config.rms_norm_eps
    writer.add_layer_norm_rms_eps(eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(0)
    kinds = {name: kind for kind, name in MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.float().numpy().squeeze()
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("architecture", CASES)
def test_a_gguf_file_gives_the_logits_of_transformers(architecture: str, tmp_path: Path) -> None:
    model = random_model(resized(CASES[architecture]))
    path = write(tmp_path / "model.gguf", architecture, model)
    checkpoint = open_checkpoint(path)
    options = {"dtype": "float32", "context": 64, "chunk": 16, "logits": "all"}
    export_checkpoint(checkpoint, tmp_path / "out", **options)
    ids = prompt(40)
    logits = Session(tmp_path / "out").prefill(input_ids=ids)["logits"]
    # float32 sums in another order.
    assert np.abs(logits - logits_of(model, ids)).max() < 2e-4


@pytest.mark.parametrize("architecture", CASES)
def test_llama_cpp_reads_the_same_logits_from_the_file(architecture: str, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    model = random_model(resized(CASES[architecture]))
    path = write(tmp_path / "model.gguf", architecture, model)
    peer = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1)
    ids = prompt(40)
    peer.eval(ids.tolist())
    export_checkpoint(
        open_checkpoint(path), tmp_path / "out", dtype="float32", context=64, chunk=16, logits="all"
    )
    logits = Session(tmp_path / "out").prefill(input_ids=ids)["logits"]
    # llama.cpp keeps keys and values in float16, and multiplies in it.
    assert np.abs(logits - np.asarray(peer.scores[:40])).max() < 0.05
