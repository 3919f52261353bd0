"""GGUF files of every architecture that has a family, against llama.cpp on the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import SMALL, Small, logits_of, prompt, random_model
from gguf_models import HEAD_DIM, tensors, write_model

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
GRANITE = {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22}
GEMMA3 = {
    **SMALL["gemma3"].changes,
    "num_hidden_layers": 7,
    "layer_types": None,
    "query_pre_attn_scalar": HEAD_DIM,
}
LINEAR = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
}


def longrope(original: int, length: int) -> Small:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "original_max_position_embeddings": original,
        "short_factor": [1.0 + i / 10 for i in range(HEAD_DIM // 2)],
        "long_factor": [2.0 + i for i in range(HEAD_DIM // 2)],
    }
    sizes = {"max_position_embeddings": length, "original_max_position_embeddings": original}
    return Small(
        *("Phi3Config", "Phi3ForCausalLM"), {"pad_token_id": 0, "rope_parameters": rope, **sizes}
    )


def gemma3(**changes: Any) -> Small:
    return Small("Gemma3TextConfig", "Gemma3ForCausalLM", {**GEMMA3, **changes})


# By the architecture that GGUF names: further words tell the cases of one apart.
CASES = {
    "qwen2": SMALL["qwen2"],
    "qwen3": SMALL["qwen3"],
    "lfm2": SMALL["lfm2"],
    "granite": SMALL["granite"],
    "granite with biases, tied": Small(
        *("GraniteConfig", "GraniteForCausalLM"),
        {**GRANITE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "phi3": SMALL["phi3"],
    "phi3, a part of each head turned": SMALL["phi3, a part of each head turned"],
    "phi3, longrope": longrope(1024, 4096),
    "phi3, longrope of a longer text": longrope(32, 128),
    "gemma2": SMALL["gemma2"],
    "gemma3": gemma3(),
    "gemma3, scaled": gemma3(rope_parameters=LINEAR),
    "gemma3 without windows": gemma3(num_hidden_layers=2, layer_types=["full_attention"] * 2),
}


def resized(small: Small) -> Small:
    """With rows that llama.cpp takes, multiples of 32."""
    return Small(small.config, small.model, {**small.changes, **SIZES, "head_dim": HEAD_DIM})


def architecture_of(case: str) -> str:
    return case.replace(",", " ").split()[0]


def written(case: str, folder: Path) -> tuple[Any, Path]:
    """A model, and its file."""
    model = random_model(resized(CASES[case]))
    return model, write_model(folder / "model.gguf", architecture_of(case), model)


@pytest.mark.parametrize("case", CASES)
def test_a_gguf_file_gives_the_logits_of_transformers(case: str, tmp_path: Path) -> None:
    model, path = written(case, tmp_path)
    checkpoint = open_checkpoint(path)
    options = {"dtype": "float32", "context": 64, "chunk": 16, "logits": "all"}
    export_checkpoint(checkpoint, tmp_path / "out", **options)
    ids = prompt(40)
    logits = Session(tmp_path / "out").prefill(input_ids=ids)["logits"]
    # float32 sums in another order.
    assert np.abs(logits - logits_of(model, ids)).max() < 2e-4


@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_reads_the_same_logits_from_the_file(case: str, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    _, path = written(case, tmp_path)
    peer = llama_cpp.Llama(
        str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0
    )
    ids = prompt(40)
    peer.eval(ids.tolist())
    export_checkpoint(
        open_checkpoint(path), tmp_path / "out", dtype="float32", context=64, chunk=16, logits="all"
    )
    logits = Session(tmp_path / "out").prefill(input_ids=ids)["logits"]
    # Of a cache in float32 (types 0). Its GELU, which Gemma has, is from a table in float16.
    tolerance = 0.05 if case.startswith("gemma") else 2e-4
    assert np.abs(logits - np.asarray(peer.scores[:40])).max() < tolerance


@pytest.mark.parametrize(
    ("case", "keys", "message"),
    [
        ("granite", {"rope__scaling__finetuned": False}, "finetuned is False, expected True"),
        ("granite", {"attention__sliding_window": 8}, "sliding_window is 8, expected 0"),
        ("phi3", {"attention__scale": 0.5}, "attention.scale is 0.5, expected 0.0"),
        ("phi3", {"rope__scaling__attn_factor": 1.5}, "attn_factor is 1.5, expected 1.0 without"),
        ("phi3", {"attention__key_length": 12}, "dimension_count is 16, expected an even part of"),
        ("gemma2", {"logit_scale": 2.0}, "logit_scale is 2.0, expected 1.0"),
        ("gemma2", {"attention__sliding_window_pattern": 0}, "pattern is 0, expected an integer"),
        ("gemma2", {"attention__sliding_window_pattern": [True]}, "is .True., expected an integer"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "softcapping is 50.0, expected 0.0"),
        ("gemma3", {"rope__freq_base_swa": -1.0}, "freq_base_swa is -1.0, expected a positive"),
        ("qwen3", {"attention__sliding_window_pattern": 2}, "expected no such key"),
    ],
)
def test_a_key_that_the_architecture_has_no_such_value_of_is_refused(
    case: str, keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = random_model(resized(CASES[case]))
    path = write_model(tmp_path / "model.gguf", case, model, **keys)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(path)


def test_windows_are_where_the_file_has_them(tmp_path: Path) -> None:
    model = random_model(resized(gemma3(num_hidden_layers=3)))
    flags = [False, True, False]
    keys = {"attention__sliding_window_pattern": flags, "rope__freq_base_swa": 5e3}
    path = write_model(tmp_path / "flags.gguf", "gemma3", model, **keys)
    config = open_checkpoint(path).config
    assert [kind == "sliding_attention" for kind in config.layer_types] == flags
    assert config.sliding_rope.theta == 5e3
    path = write_model(
        tmp_path / "period.gguf", "gemma3", model, attention__sliding_window_pattern=2
    )
    kinds = open_checkpoint(path).config.layer_types
    assert [kind == "sliding_attention" for kind in kinds] == [True, False, True]


@pytest.mark.parametrize(("architecture", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_27b_models_are_known_by_their_layers_and_divide_by_another_size(
    architecture: str, layers: int, tmp_path: Path
) -> None:
    """transformers' query_pre_attn_scalar of both is hidden_size / num_attention_heads."""
    small = CASES[architecture]
    changes = {"num_hidden_layers": layers, "layer_types": None, "hidden_size": 96}
    sizes = {"num_attention_heads": 4, "head_dim": HEAD_DIM, "query_pre_attn_scalar": 24}
    model = random_model(Small(small.config, small.model, {**small.changes, **changes, **sizes}))
    config = open_checkpoint(write_model(tmp_path / "a.gguf", architecture, model)).config
    assert config.scale == model.model.layers[0].self_attn.scaling == 24**-0.5


@pytest.mark.parametrize(
    ("case", "tensor", "message"),
    [
        ("gemma2", "blk.1.post_ffw_norm.weight", "'blk.1.post_ffw_norm.weight' is missing"),
        ("gemma3", "blk.0.attn_q_norm.weight", "'blk.0.attn_q_norm.weight' is missing"),
        ("phi3", "blk.0.attn_qkv.weight", "'blk.0.attn_qkv.weight' is missing"),
        ("granite", "blk.1.ffn_gate.weight", "'blk.1.ffn_gate.weight' is missing"),
        ("phi3, longrope", "rope_factors_long.weight", "of the tensors .* one is missing"),
    ],
)
def test_a_tensor_that_is_missing_is_named(
    case: str, tensor: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(resized(CASES[case]))
    architecture = architecture_of(case)
    found = {name: array for name, array in tensors(architecture, model).items() if name != tensor}
    monkeypatch.setattr("gguf_models.tensors", lambda *_: found)
    path = write_model(tmp_path / "model.gguf", architecture, model)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "tensor", ["rope_factors_long.weight", "rope_freqs.weight", "other.weight"]
)
def test_a_tensor_that_the_architecture_has_no_place_for_is_refused(
    tensor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = "phi3, longrope" if tensor == "rope_freqs.weight" else "gemma2"
    model = random_model(resized(CASES[case]))
    architecture = architecture_of(case)
    found = {**tensors(architecture, model), tensor: np.ones(8, np.float32)}
    monkeypatch.setattr("gguf_models.tensors", lambda *_: found)
    path = write_model(tmp_path / "model.gguf", architecture, model)
    with pytest.raises(ValueError, match=f"tensor '{tensor}' has no place in the model"):
        open_checkpoint(path)
