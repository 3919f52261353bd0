"""``onnx-iron estimate`` of configurations, and what it says of the models that designs are for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from npu_models import SMALL_LLAMA, export_small_llama

from onnx_iron.tools.estimate import BANDWIDTH
from onnx_iron.tools.main import main

SMOLLM2 = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
# Of their widths, a few layers and a small vocabulary; a pattern of two of LFM2's layers.
LLAMA = {
    **SMOLLM2,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 1024,
}
LFM2 = {
    "model_type": "lfm2",
    "hidden_size": 1024,
    "intermediate_size": 6656,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 1024,
    "max_position_embeddings": 128000,
    "conv_L_cache": 3,
}


def estimated(folder: Path, capsys: Any, config: dict[str, Any], *options: str) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    assert main(["estimate", str(folder), "--target", "npu2", "--json", *options]) == 0
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    return json.loads(capsys.readouterr().out)["calls"]


def test_a_token_of_smollm2_takes_12_ms_at_the_most_with_a_full_context(
    tmp_path: Path, capsys: Any
) -> None:
    calls = estimated(tmp_path, capsys, SMOLLM2, "--filled", "64,1024")
    decode = calls["decode.onnx"]
    assert decode["list_us"] <= 12_000
    assert decode["filled_us"]["1024"] == decode["list_us"]
    assert decode["filled_us"]["64"] < decode["list_us"] - 400
    assert decode["switches"] == 2, "to the embedding's design, and to that of all other steps"
    # Of the full context, the keys and values of each layer, and little else.
    kept = 30 * 1024 * 2 * 192 * 2
    assert kept < decode["lines"]["Attention"]["bytes"] < 1.05 * kept
    # A prompt's chunk reads the cache once for all its rows.
    asked = 30 * 64 * 576 * 2
    attention = calls["prefill.onnx"]["lines"]["Attention"]
    assert kept < attention["bytes"] < kept + 2 * asked + 30 * 1024 * 8


@pytest.mark.parametrize("family", ["llama", "lfm2"])
def test_layers_take_half_more_than_their_weights_stream_at_the_most(
    family: str, tmp_path: Path, capsys: Any
) -> None:
    """What two layers more take: so a whole model does not take more either, for its head takes as
    long as its weights.
    """
    taken = []
    for layers in (2, 4):
        config = {**(LFM2 if family == "lfm2" else LLAMA), "num_hidden_layers": layers}
        if family == "lfm2":
            config["layer_types"] = ["conv", "full_attention"] * (layers // 2)
        calls = estimated(tmp_path / str(layers), capsys, config)
        taken.append(calls["decode.onnx"]["list_us"])
    hidden, inner, kv = (1024, 4608, 512) if family == "lfm2" else (2048, 8192, 512)
    attention = 2 * hidden * hidden + 2 * kv * hidden
    other = 4 * hidden * hidden if family == "lfm2" else attention
    weights = 2 * (attention + other + 2 * 3 * hidden * inner)
    streaming_us = 1e6 * weights / BANDWIDTH
    assert streaming_us < taken[1] - taken[0] < 1.5 * streaming_us


def test_a_configuration_is_estimated_as_its_checkpoints_export(
    tmp_path: Path, capsys: Any
) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": SMALL_LLAMA.hidden_size,
        "intermediate_size": SMALL_LLAMA.intermediate_size,
        "num_hidden_layers": SMALL_LLAMA.num_layers,
        "num_attention_heads": SMALL_LLAMA.num_heads,
        "num_key_value_heads": SMALL_LLAMA.num_kv_heads,
        "vocab_size": SMALL_LLAMA.vocab_size,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
    }
    options = ("--context", "192", "--chunk", "16")
    calls = estimated(tmp_path / "config", capsys, config, *options)
    folder = export_small_llama(tmp_path / "export", context=192)
    assert main(["estimate", str(folder), "--target", "npu2", "--json"]) == 0
    assert calls == json.loads(capsys.readouterr().out)["calls"]


@pytest.mark.parametrize(
    ("options", "config", "message"),
    [
        (["--filled", "64,many"], {}, "'64,many' is no list of numbers above 0"),
        (["--filled", "0"], {}, "'0' is no list of numbers above 0"),
        (["--context", "16384"], {}, "--context is 16384, expected 1..8192"),
        ([], {"model_type": "rnn"}, "'model_type' is 'rnn', expected one of"),
    ],
)
def test_what_cannot_be_estimated_is_an_error_that_says_why(
    options: list[str], config: dict[str, Any], message: str, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMOLLM2 | config))
    try:
        code = main(["estimate", str(path), "--target", "npu2", *options])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code != 0
    assert message in capsys.readouterr().err


def test_a_folder_with_neither_models_nor_a_configuration_is_named(
    tmp_path: Path, capsys: Any
) -> None:
    assert main(["estimate", str(tmp_path), "--target", "npu1"]) != 0
    assert f"{tmp_path} holds neither prefill.onnx nor decode.onnx" in capsys.readouterr().err
