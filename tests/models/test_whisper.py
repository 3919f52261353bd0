"""Whisper's encoder against transformers, and what an export of it says and keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from checkpoints import VOCABULARY, saved

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.tools.main import main

MELS, POSITIONS = 16, 40


def small_whisper(kind: str = "WhisperForConditionalGeneration", **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 48, "encoder_layers": 2, "encoder_ffn_dim": 100}
    sizes |= {"encoder_attention_heads": 6, "decoder_attention_heads": 6, "decoder_layers": 1}
    sizes |= {"num_mel_bins": MELS, "max_source_positions": POSITIONS}
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        decoder_ffn_dim=40,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        **{**sizes, **changes},
    )
    model = getattr(transformers, kind)(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.5 if weight.ndim == 1 else 0.0, 0.2)
    return model


def sound(positions: int = POSITIONS) -> np.ndarray[Any, Any]:
    """A spectrogram with two frames for each position."""
    random = np.random.default_rng(1)
    return random.standard_normal((MELS, 2 * positions)).astype(np.float32)


def rows_of(model: Any, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with torch.inference_mode():
        found = model.get_encoder()(torch.tensor(features[None])).last_hidden_state
        return np.asarray(found[0])


def exported(folder: Path, out: Path, **options: Any) -> Path:
    export_checkpoint(open_checkpoint(folder), out, **{"context": POSITIONS, **options})
    return out


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_a_batch_of_windows_has_the_rows_of_transformers(provider: str, tmp_path: Path) -> None:
    model = small_whisper()
    folder = saved(model, tmp_path / "in")
    out = exported(folder, tmp_path / "out", dtype="float32", batch=2)
    features = np.stack([sound(), sound()[:, ::-1]])
    rows = Session(out, provider=provider).call("encoder", input_features=features)
    expected = [rows_of(model, window) for window in features.copy()]
    np.testing.assert_allclose(rows["last_hidden_state"], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kind": "WhisperModel"},
        {"activation_function": "gelu_new", "encoder_layers": 3},
        {"d_model": 32, "encoder_attention_heads": 2, "scale_embedding": True},
    ],
    ids=lambda changes: " ".join(changes) or "plain",
)
@pytest.mark.parametrize("provider", ["iron", "stock"])
@pytest.mark.parametrize("dialect", ["iron", "standard"])
def test_an_encoder_has_the_rows_of_transformers(
    changes: dict[str, Any], provider: str, dialect: str, tmp_path: Path
) -> None:
    model = small_whisper(**{"decoder_attention_heads": 2, **changes})
    folder = saved(model, tmp_path / "in")
    out = exported(folder, tmp_path / "out", dtype="float32", dialect=dialect)
    session = Session(out, provider=provider)
    rows = session.call("encoder", input_features=sound())["last_hidden_state"]
    expected = rows_of(model, sound())
    assert rows.shape == expected.shape == (POSITIONS, model.config.d_model)
    assert np.abs(rows - expected).max() < 2e-5


@pytest.mark.parametrize("provider", ["iron", "stock"])
def test_an_encoder_in_bfloat16_is_near_the_float32_one(provider: str, tmp_path: Path) -> None:
    model = small_whisper()
    out = exported(saved(model, tmp_path / "in"), tmp_path / "out")
    session = Session(out, provider=provider)
    if provider == "iron":
        assert session.placement()["encoder"].complete
    rows = session.call("encoder", input_features=sound())["last_hidden_state"].astype(np.float64)
    expected = rows_of(model, sound())
    cosines = (rows * expected).sum(1)
    cosines /= np.linalg.norm(rows, axis=1) * np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.9995


def test_an_export_for_shorter_sounds_is_an_encoder_with_fewer_positions(tmp_path: Path) -> None:
    model = small_whisper()
    out = exported(saved(model, tmp_path / "in"), tmp_path / "out", dtype="float32", context=9)
    rows = Session(out).call("encoder", input_features=sound(9))["last_hidden_state"]
    shorter = small_whisper(max_source_positions=9)
    tensors = {n: t for n, t in model.state_dict().items() if "embed_positions" not in n}
    shorter.load_state_dict(tensors, strict=False)
    positions = model.get_encoder().embed_positions.weight[:9]
    shorter.get_encoder().embed_positions.weight.data.copy_(positions)
    assert np.abs(rows - rows_of(shorter, sound(9))).max() < 2e-5


def test_a_sound_of_another_length_is_refused_and_never_padded(tmp_path: Path) -> None:
    session = Session(exported(saved(small_whisper(), tmp_path / "in"), tmp_path / "out"))
    for features in (sound(POSITIONS - 1), sound(POSITIONS + 1), sound()[None]):
        with pytest.raises(ValueError, match=r"'input_features' .*expected .*\(16, 80\)"):
            session.call("encoder", input_features=features)


def test_the_command_says_that_the_decoder_is_left_out_and_takes_every_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(small_whisper(), tmp_path / "in")
    (folder / "preprocessor_config.json").write_text('{"feature_size": 16}')
    out = tmp_path / "out"
    assert main(["export", str(folder), "-o", str(out)]) == 0
    output = capsys.readouterr()
    assert {Path(line).name for line in output.out.splitlines()} == {
        *("encoder.onnx", "weights.bin", "config.json", "generation_config.json"),
        "preprocessor_config.json",
    }
    assert (
        "28 tensors of decoder are left out: of a model of type whisper, the encoder alone is "
        "exported" in " ".join(output.err.split())
    )
    assert main(["inspect", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["encoder"]
    assert shown["inputs"] == [
        {"name": "input_features", "dtype": "FLOAT", "shape": [MELS, 2 * POSITIONS]}
    ]
    assert shown["outputs"][0]["shape"] == [POSITIONS, 48]
    assert shown["metadata"]["onnx_iron.model_type"] == "whisper"
    assert main(["generate", str(out), "hello"]) == 1
    assert "holds no model that generates text; it needs decode.onnx" in capsys.readouterr().err
    for command in (["export", str(folder), "-o", str(out), "--chunk", "8"], ["demo", "--model"]):
        assert main(command if len(command) > 2 else [*command, str(folder)]) == 1
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert "--chunk is 8, but a model of type whisper takes its input as a whole" in line or (
            "holds a model of type whisper, which generates no text; export it" in line
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_attention_heads": 5}, "'encoder_attention_heads' is 5, expected a divisor"),
        ({"encoder_layers": 3}, "'encoder.layers.2.* is missing, and the configuration asks"),
        ({"encoder_layers": 1}, "'model.encoder.layers.1.* has no place in the model"),
        ({"num_mel_bins": 8}, r"is \(48, 16, 3\), expected \(48, 8, 3\)"),
        ({"activation_function": "tanh"}, "'activation_function' is 'tanh', expected 'gelu' or"),
        ({"new_trick": 1}, "'new_trick' is 1, and what it changes in a model of type whisper"),
        ({"architectures": ["WhisperForAudioClassification"]}, "expected WhisperForConditional"),
    ],
)
def test_a_configuration_that_makes_no_encoder_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = saved(small_whisper(), tmp_path / "in")
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
    with pytest.raises(ValueError, match=message):
        exported(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tensor_that_is_neither_the_encoder_s_nor_the_decoder_s_is_refused(
    tmp_path: Path,
) -> None:
    model = small_whisper()
    folder = saved(model, tmp_path / "in")
    tensors = {n: t.clone() for n, t in model.state_dict().items() if n != "proj_out.weight"}
    safetensors.torch.save_file(
        {**tensors, "model.adapter.weight": torch.zeros(2)}, folder / "model.safetensors"
    )
    with pytest.raises(ValueError, match=r"'model\.adapter.weight' has no place in the model"):
        exported(folder, tmp_path / "out")
