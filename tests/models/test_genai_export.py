"""What an export writes for onnxruntime-genai: the model, called as genai does, and the files."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
import transformers
from checkpoints import SMALL, VOCABULARY, logits_of, prompt, random_model, saved
from genai_calls import Caller, opened

import onnx_iron
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.models.genai.tokenizer_files import tokenizer_files
from onnx_iron.tools.main import main

CONTEXT = 64
# Sums in float32 in another order than transformers', through a few layers; logits are near 4.
CLOSE = 2e-4
DRIVEN = [name for name in SMALL if not name.startswith(("lfm2", "mamba", "falcon_mamba"))]


def test_what_only_genais_files_take_is_not_imported_for_other_exports() -> None:
    script = "import sys; sys.modules['tokenizers'] = None; import onnx_iron.models.exported"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@cache
def model_of(name: str) -> Any:
    return random_model(SMALL[name])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(name: str) -> Path:
        return saved(model_of(name), tmp_path_factory.mktemp("checkpoint"))

    return make


@pytest.fixture(scope="module")
def folder(source: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(name: str, **options: Any) -> Path:
        out = tmp_path_factory.mktemp("out")
        return exported(source(name), out, **options)

    return make


def exported(checkpoint: Path, out: Path, **options: Any) -> Path:
    settings = {"dtype": "float32", "context": CONTEXT, "chunk": 16, "genai": "iron", **options}
    export_checkpoint(open_checkpoint(checkpoint), out, **settings)
    return out


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("name", DRIVEN)
def test_a_family_has_transformers_logits(name: str, provider: str, folder: Any) -> None:
    session = opened(folder(name), provider)
    ids = prompt(30)
    expected = logits_of(model_of(name), ids)
    call = Caller(session)
    found = [call(ids[None, :25]), *(call(ids[None, i : i + 1]) for i in range(25, 30))]
    assert all(logits.shape == (1, 1, VOCABULARY) for logits in found)
    assert np.abs(np.concatenate(found, 1)[0] - expected[24:]).max() < CLOSE
    assert provider == "stock" or onnx_iron.placement(session).complete


@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("room", [0, CONTEXT])
@pytest.mark.parametrize("name", ["llama", "mistral with a window", "gemma3"])
def test_sequences_of_several_lengths_run_at_once(
    name: str, room: int, provider: str, folder: Any
) -> None:
    call = Caller(opened(folder(name), provider), batch=3, room=room)
    lengths, more = [20, 7, 1], 4
    texts = [prompt(length + more, seed) for seed, length in enumerate(lengths)]
    ids = np.zeros((3, max(lengths)), np.int64)
    for row, text, length in zip(ids, texts, lengths, strict=True):
        row[:length] = text[:length]
    found = [call(ids, lengths)]
    for step in range(more):
        last = [text[length + step] for text, length in zip(texts, lengths, strict=True)]
        found.append(call(np.array(last)[:, None]))
    made = np.concatenate(found, 1)
    for logits, text, length in zip(made, texts, lengths, strict=True):
        expected = logits_of(model_of(name), text)[length - 1 :]
        assert np.abs(logits - expected).max() < CLOSE


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_rows_may_come_behind_others_in_a_cache_with_room(provider: str, folder: Any) -> None:
    call = Caller(opened(folder("qwen3"), provider), room=CONTEXT)
    ids = prompt(30)
    found = [call(ids[None, a:b])[0, -1] for a, b in ((0, 9), (9, 10), (10, 30))]
    expected = logits_of(model_of("qwen3"), ids)[[8, 9, 29]]
    assert np.abs(np.stack(found) - expected).max() < CLOSE


def test_every_row_has_logits_where_all_are_asked_for(folder: Any) -> None:
    ids = prompt(11)
    (made,) = Caller(opened(folder("llama", logits="all"), "iron"))(ids[None])
    assert np.abs(made - logits_of(model_of("llama"), ids)).max() < CLOSE


def test_the_model_is_one_that_onnx_takes_and_shares_the_weights(
    source: Any, folder: Any, tmp_path: Path
) -> None:
    out = folder("gemma3")
    onnx.checker.check_model(str(out / "model.onnx"))
    alone = exported(source("gemma3"), tmp_path, genai=None)
    assert (out / "weights.bin").read_bytes() == (alone / "weights.bin").read_bytes()


def test_a_session_leaves_genais_model_alone(folder: Any, tmp_path: Path) -> None:
    session = onnx_iron.Session(folder("llama"))
    assert list(session.placement()) == ["prefill", "decode"]
    (tmp_path / "model.onnx").write_bytes((folder("llama") / "model.onnx").read_bytes())
    with pytest.raises(FileNotFoundError, match="holds a model for onnxruntime-genai alone"):
        onnx_iron.Session(tmp_path)


def test_another_export_takes_genais_files_away(source: Any, tmp_path: Path) -> None:
    exported(source("llama"), tmp_path)
    exported(source("qwen2"), tmp_path)
    assert {"model.onnx", "genai_config.json"} <= {file.name for file in tmp_path.iterdir()}
    exported(source("qwen3"), tmp_path, genai=None)
    found = {file.name for file in tmp_path.iterdir()}
    assert not {"model.onnx", "genai_config.json"} & found
    onnx_iron.Session(tmp_path).prefill(input_ids=prompt(3))


def test_somebody_elses_model_beside_an_export_stays(source: Any, tmp_path: Path) -> None:
    for name in ("model.onnx", "genai_config.json"):
        (tmp_path / name).write_text("no model")
    exported(source("llama"), tmp_path, genai=None)
    assert (tmp_path / "model.onnx").read_text() == "no model"


def test_the_configuration_says_what_the_checkpoint_does(tmp_path: Path) -> None:
    model = random_model(SMALL["gemma2"])
    model.config.eos_token_id, model.config.pad_token_id = [5, 7], 3
    model.generation_config.update(do_sample=True, top_k=20, temperature=0.5, eos_token_id=[7, 9])
    exported(saved(model, tmp_path / "from"), tmp_path / "to", genai="stock")
    made = json.loads((tmp_path / "to" / "genai_config.json").read_text())
    said = made["model"]
    assert (said["type"], said["eos_token_id"], said["pad_token_id"]) == ("gemma2", [5, 7, 9], 3)
    assert (said["vocab_size"], said["context_length"]) == (VOCABULARY, CONTEXT)
    decoder = said["decoder"]
    sizes = [decoder[f"num_{what}"] for what in ("attention_heads", "key_value_heads")]
    assert (sizes, decoder["head_size"], decoder["num_hidden_layers"]) == ([6, 2], 16, 2)
    assert decoder["session_options"]["provider_options"] == []
    assert made["search"] == {
        "max_length": CONTEXT,
        "do_sample": True,
        "num_beams": 1,
        "past_present_share_buffer": True,
        "repetition_penalty": 1.0,
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 20,
    }


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("lfm2", {}, "lfm2 can't be driven by onnxruntime-genai: it keeps more than keys and v"),
        ("mamba", {}, "mamba can't be driven by onnxruntime-genai: it keeps more than keys and v"),
        ("llama", {"batch": 2}, "batch is 2, and the model for onnxruntime-genai takes any"),
        ("llama", {"dialect": "standard"}, "dialect is 'standard', and the model for onnxruntime"),
        ("llama", {"genai": "cuda"}, "genai is 'cuda', expected one of"),
    ],
)
def test_what_genai_can_not_drive_is_refused_before_anything_is_written(
    name: str, options: dict[str, Any], reason: str, source: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        exported(source(name), tmp_path / "out", **options)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=9, num_attention_heads=6
    )
    source = saved(transformers.BertModel(config), tmp_path / "bert")
    with pytest.raises(ValueError, match="it is no decoder with a cache of keys and values"):
        exported(source, tmp_path / "out")


def test_a_gguf_files_tokenizer_cuts_texts_as_ours(
    smollm2: Path,
) -> None:
    checkpoint = open_checkpoint(smollm2)
    files = tokenizer_files(checkpoint)
    made = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    own = checkpoint.text().tokenizer
    for text in ("Hello,  world!\n\n 1234 don't", "naïve café — 東京 🙂", "<|im_start|>user\nhi"):
        assert made.encode(text).ids == own.encode(text)
        assert made.decode(own.encode(text), skip_special_tokens=False) == text
    said = json.loads(files["tokenizer_config.json"])
    assert said["eos_token"] == "<|im_end|>"
    assert "im_start" in said["chat_template"]


def test_the_command_writes_what_genai_drives(
    source: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(source("llama")), "-o", str(tmp_path / "out"), "--genai"]
    assert main([*arguments, "--context", "32", "--genai-provider", "stock"]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.split()}
    assert {"model.onnx", "genai_config.json", "decode.onnx", "weights.bin"} <= written
    decoder = json.loads((tmp_path / "out" / "genai_config.json").read_text())["model"]["decoder"]
    assert decoder["filename"] == "model.onnx"
    assert decoder["session_options"]["provider_options"] == []


def test_the_command_says_in_a_line_what_genai_can_not_drive(
    source: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(source("lfm2")), "-o", str(out), "--genai", "--context", "32"]) == 1
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert "lfm2 can't be driven by onnxruntime-genai" in line
    assert not out.exists()
