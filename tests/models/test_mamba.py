"""Mamba: texts of any length, and numbers that stay float32 beside bfloat16 weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checkpoints import SMALL, Small, logits_of, prompt, random_model, saved
from models_tokenizer import save_tokenizer

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.decoder import Shape
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.tools.main import main


@pytest.fixture(scope="module")
def model() -> Any:
    return random_model(SMALL["mamba"])


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(model, tmp_path_factory.mktemp("mamba"))


def test_a_text_longer_than_any_context_goes_on(model: Any, folder: Path, tmp_path: Path) -> None:
    export_checkpoint(open_checkpoint(folder), tmp_path, dtype="float32", context=8, chunk=8)
    session, ids = Session(tmp_path), prompt(300)
    logits = session.prefill(input_ids=ids)["logits"][-1]
    # Float32 sums in another order than transformers'; logits are near 2.
    assert np.abs(logits - logits_of(model, ids)[-1]).max() < 2e-4
    assert session.position == 300


def test_a_context_for_a_model_without_a_cache_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["export", str(folder), "-o", str(tmp_path / "out")]
    assert main([*given, "--context", "64"]) != 0
    assert "--context is 64, but a model of type mamba keeps no cache" in capsys.readouterr().err
    assert main(given) == 0


def test_generate_answers_from_the_exported_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {**SMALL["mamba"].changes, "vocab_size": 320, "eos_token_id": 2}
    made = saved(random_model(Small("MambaConfig", "MambaForCausalLM", changes)), tmp_path)
    save_tokenizer(made)
    assert main(["export", str(made), "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    asked = ["generate", str(tmp_path / "out"), "A river", "--raw", "--greedy", "--max-tokens", "8"]
    assert main(asked) == 0
    first = capsys.readouterr().out
    assert first.strip()
    assert main(asked) == 0
    assert capsys.readouterr().out == first


def test_the_recurrence_is_float32_beside_bfloat16_weights(folder: Path, tmp_path: Path) -> None:
    export_checkpoint(open_checkpoint(folder), tmp_path, dtype="bfloat16")
    graph = onnx.load(tmp_path / "decode.onnx", load_external_data=False).graph
    types = {
        made.name: made.type.tensor_type.elem_type for made in (*graph.input, *graph.value_info)
    } | {made.name: made.data_type for made in graph.initializer}
    scans = [node for node in graph.node if node.op_type == "SelectiveScan"]
    assert len(scans) == 2
    for node in scans:
        x, dt, a, b, c, state, d, bias, *_ = (types[name] for name in node.input if name)
        assert {x, dt, b, c} == {onnx.TensorProto.BFLOAT16}
        assert {a, state, d, bias} == {onnx.TensorProto.FLOAT}
    # What layers add to stays float32, as residual_in_fp32 says.
    added = [node for node in graph.node if node.op_type == "Add"]
    assert {types[node.output[0]] for node in added} == {onnx.TensorProto.FLOAT}


def test_constants_are_exact_where_weights_are_rounded(model: Any, folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    graph: Any = checkpoint.family.build(
        checkpoint.config,
        checkpoint.weights("bfloat16"),
        Shape(8, 4),
    )
    mixer = model.backbone.layers[1].mixer
    np.testing.assert_allclose(
        graph.layers[1].mixer.a.load(), -np.exp(mixer.A_log.detach().numpy()), rtol=1e-6
    )
    np.testing.assert_array_equal(graph.layers[1].mixer.d.load(), mixer.D.detach().numpy())


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu', expected 'silu'"),
        ({"ssm_cfg": {"layer": "Mamba2"}}, "'ssm_cfg' is {'layer': 'Mamba2'}, expected {}"),
        ({"time_step_rank": "wide"}, "'time_step_rank' is 'wide', expected an integer"),
        ({"time_step_rank": 4}, "'.*x_proj.weight' is .*expected .* by the configuration"),
        ({"n_groups": 2}, "'n_groups' is 2, and what it changes .* isn't implemented"),
    ],
)
def test_what_the_graph_has_not_is_refused(
    entries: dict[str, Any], message: str, model: Any, tmp_path: Path
) -> None:
    saved(model, tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **entries}))
    with pytest.raises(ValueError, match=message):
        export_checkpoint(open_checkpoint(tmp_path), tmp_path / "out")


def test_entries_of_older_configurations_change_nothing(model: Any, tmp_path: Path) -> None:
    saved(model, tmp_path)
    config = tmp_path / "config.json"
    older = {"d_model": 48, "n_layer": 2, "fused_add_norm": True, "rms_norm": True, "ssm_cfg": {}}
    values = {**json.loads(config.read_text()), **older, "time_step_rank": "auto"}
    config.write_text(json.dumps(values))
    assert open_checkpoint(tmp_path).config.step_rank == 3
