"""Hugging Face folders: what is read of them, and what is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from checkpoints import SMALL, random_model, saved

from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.models.huggingface import HuggingFaceFolder

NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def model() -> Any:
    return random_model(SMALL["llama"])


@pytest.fixture
def folder(model: Any, tmp_path: Path) -> Path:
    return saved(model, tmp_path / "checkpoint")


def configured(folder: Path, **changes: Any) -> Path:
    """The folder with entries of its configuration changed, or removed where None."""
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return folder


def export(folder: Path) -> None:
    export_checkpoint(open_checkpoint(folder), folder / "out", context=32, chunk=4)


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wanted", [np.float32, ml_dtypes.bfloat16])
def test_every_weight_is_the_stored_one_rounded_once(
    stored: torch.dtype, wanted: Any, model: Any, tmp_path: Path
) -> None:
    tensors = {name: weight.to(stored) for name, weight in model.state_dict().items()}
    saved(model, tmp_path)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = HuggingFaceFolder(tmp_path)
    weights = checkpoint.weights(wanted)
    assert set(checkpoint.names) == set(tensors)
    for name, tensor in tensors.items():
        loaded = weights(name, *tensor.shape).load()
        to = torch.bfloat16 if wanted is ml_dtypes.bfloat16 else torch.float32
        expected = tensor.float().to(to).view(torch.uint8).numpy()
        assert loaded.dtype == wanted
        assert loaded.tobytes() == expected.tobytes()


def test_a_weight_larger_than_a_block_is_the_same_as_in_one_piece(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = HuggingFaceFolder(folder).weights(np.float32)(NAME, 100, 48)
    whole = weight.load()
    monkeypatch.setattr("onnx_iron.models.huggingface._BLOCK_ELEMENTS", 7 * 48)
    assert weight.load().tobytes() == whole.tobytes()


def test_shards_are_found_by_their_index(model: Any, tmp_path: Path) -> None:
    whole = HuggingFaceFolder(saved(model, tmp_path / "whole"))
    parts = HuggingFaceFolder(saved(model, tmp_path / "parts", max_shard_size="40KB"))
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 2
    assert set(parts.names) == set(whole.names)
    first, second = whole.weights(np.float32), parts.weights(np.float32)
    for name, tensor in model.state_dict().items():
        a, b = first(name, *tensor.shape).load(), second(name, *tensor.shape).load()
        assert a.tobytes() == b.tobytes()


def test_a_shard_that_is_missing_or_elsewhere_is_named(model: Any, tmp_path: Path) -> None:
    saved(model, tmp_path, max_shard_size="40KB")
    last = max(tmp_path.glob("*.safetensors"))
    last.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match=rf"{last.name} is not there, and model.safetens"):
        open_checkpoint(tmp_path)
    (tmp_path / "away").rename(last)
    index = tmp_path / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text(text.replace(f'"{last.name}"', f'"../{tmp_path.name}/{last.name}"'))
    with pytest.raises(ValueError, match=r"is in '\.\./.*', expected a file beside it"):
        open_checkpoint(tmp_path)
    index.write_text(text.replace(NAME, "model.layers.0.mlp.up_proj.other"))
    with pytest.raises(ValueError, match=r"has no tensor 'model.layers.0.mlp.up_proj.other'"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_neox"}, "'model_type' is 'gpt_neox', expected one of .*lfm2.*llama"),
        ({"model_type": None}, "'model_type' is None, expected one of"),
        ({"model_type": ["llama"]}, r"'model_type' is \['llama'\], expected one of"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "expected LlamaForCausalLM"),
        ({"new_trick": 3}, "'new_trick' is 3, and what it changes in a model of type llama isn't"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config' is .*isn't implemented"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu', expected 'silu'"),
        ({"hidden_size": None}, "'hidden_size' is missing, expected an integer of 1 or more"),
        ({"hidden_size": "48"}, "'hidden_size' is '48', expected an integer of 1 or more"),
        ({"hidden_size": 0}, "'hidden_size' is 0, expected an integer of 1 or more"),
        ({"num_hidden_layers": 10**15}, "num_hidden_layers' is 1000000000000000, expected"),
        ({"num_hidden_layers": 3}, "'model.layers.2.* is missing, and the configuration asks"),
        ({"num_hidden_layers": 1}, "'model.layers.1.* has no place in the model"),
        ({"num_key_value_heads": 4}, "'num_key_value_heads' is 4, expected a divisor of 6 heads"),
        ({"head_dim": 7}, "'head_dim' is 7, expected an even number"),
        ({"intermediate_size": 99}, r"is \(100, 48\), expected \(99, 48\) by the configuration"),
        ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings' is 'yes', expected true or false"),
        ({"rms_norm_eps": -1.0}, "'rms_norm_eps' is -1.0, expected a number above 0"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "'rope_type' is 'spiral', expected 'def"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters: 'factor' is missing"),
        ({"rope_parameters": {"rope_theta": 1e4, "twist": 2}}, "'twist' is 2, and what it change"),
        ({"rope_parameters": {"rope_theta": float("nan")}}, "'rope_theta' is nan, expected a fi"),
    ],
)
def test_a_configuration_that_makes_no_model_is_refused_in_one_line(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    configured(folder, **changes)
    with pytest.raises(ValueError, match=message) as refused:
        export(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": None, "rope_theta": 10000.0},
        {"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": None},
        {"torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": False},
        {"unknown_but_null": None},
    ],
)
def test_an_older_configuration_is_read_too(changes: dict[str, Any], folder: Path) -> None:
    plain = HuggingFaceFolder(folder).config
    assert HuggingFaceFolder(configured(folder, **changes)).config == plain


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (NAME, None, f"'{NAME}' is missing"),
        (NAME, torch.zeros(100, 47), r"is \(100, 47\), expected \(100, 48\)"),
        (NAME, torch.zeros(100, 48, dtype=torch.int8), "is stored as I8, expected F32, F16, BF16"),
        ("model.layers.0.extra.weight", torch.zeros(3), "extra.weight' has no place in the model"),
    ],
)
def test_tensors_that_make_no_model_are_refused(
    name: str, tensor: torch.Tensor | None, message: str, model: Any, folder: Path
) -> None:
    tensors = {**model.state_dict(), name: tensor}
    kept = {n: t for n, t in tensors.items() if t is not None}
    safetensors.torch.save_file(kept, folder / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        export(folder)
    assert not (folder / "out").exists()


def test_tables_that_older_checkpoints_have_saved_are_left_out(model: Any, folder: Path) -> None:
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    safetensors.torch.save_file({**model.state_dict(), **table}, folder / "model.safetensors")
    export(folder)


def test_a_folder_that_is_no_checkpoint_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no config.json; give a folder"):
        open_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file or folder; give a Hugging"):
        open_checkpoint(tmp_path / "nowhere")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (b"", content[:4], content[:-100], b"\xff" * 100, b"PK\3\4" + bytes(100)):
        weights.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model.safetensors is not a whole safetensors file"):
            open_checkpoint(folder)
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(
        FileNotFoundError, match=r"pytorch_model.bin; save the model as safetensors"
    ):
        open_checkpoint(folder)
    for text in ("", "[1]", "{", "[" * 100_000, "\xff"):
        (folder / "config.json").write_text(text, "latin-1")
        with pytest.raises(ValueError, match=r"config.json (is no JSON file|holds a list)"):
            open_checkpoint(folder)


def test_an_export_leaves_no_file_of_the_model_before(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (folder / "tokenizer.json").write_text("{}")
    export_checkpoint(open_checkpoint(folder), out, context=32, chunk=4)
    assert {"tokenizer.json", "config.json"} <= {file.name for file in out.iterdir()}
    (folder / "tokenizer.json").unlink()
    export_checkpoint(open_checkpoint(folder), out, context=32, chunk=4)
    assert "tokenizer.json" not in {file.name for file in out.iterdir()}


def test_a_full_disk_leaves_the_model_before(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_checkpoint(open_checkpoint(folder), out, context=32, chunk=4)
    before = {file.name: file.read_bytes() for file in out.iterdir()}

    def full(done: int, total: int, name: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        export_checkpoint(open_checkpoint(folder), out, context=64, chunk=4, progress=full)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    shutil.rmtree(out)
