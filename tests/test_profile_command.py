"""``onnx-iron profile``: its tables, its JSON, its trace, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from gguf_files import write_llama
from provider_models import constant, model, node, spec

from onnx_iron.tools import machine
from onnx_iron.tools.main import main


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of a cache, which are measured in no time."""
    monkeypatch.setattr(machine, "BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "STEPS", 1000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("profile")
    write_llama(base / "small.gguf")
    command = ["export", str(base / "small.gguf"), "-o", str(base / "out")]
    assert main([*command, "--context", "32", "--chunk", "8"]) == 0
    return base / "out"


def profile(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["profile", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def steps_of(path: Path) -> dict[str, int]:
    """The operators' nodes that a file has, by name."""
    counted: dict[str, int] = {}
    for one in onnx.load(path, load_external_data=False).graph.node:
        counted[one.op_type] = counted.get(one.op_type, 0) + 1
    return counted


def test_a_prompt_and_tokens_are_counted_by_operator_kind_and_node(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    found = profile(capsys, str(folder), "--prompt", "16", "--tokens", "3", "--trace", str(trace))
    assert set(found["limits"]) == {"threads", "read", "float32", "bfloat16"}
    assert found["machine"]["versions"].keys() >= {"onnxruntime", "numpy"}
    prefill, decode = found["sessions"].values()
    for session, runs, role in ((prefill, 2, "prefill"), (decode, 3, "decode")):
        assert session["runs"] == runs
        nodes = steps_of(folder / f"{role}.onnx")
        calls = {line["name"]: line["calls"] for line in session["operators"]}
        for operator in ("RMSNorm", "Attention", "RoPE", "SiLU"):
            assert calls[operator] == runs * nodes[operator]
        for by in ("operators", "kinds", "nodes"):
            lines = session[by]
            assert sum(line["ms"] for line in lines) == pytest.approx(session["steps_ms"])
            assert sum(line["share"] for line in lines) == pytest.approx(1)
            assert [line["ms"] for line in lines] == sorted((x["ms"] for x in lines), reverse=True)
        assert session["ms"] >= session["steps_ms"]
    assert json.loads(trace.read_text())["otherData"]["dropped_runs"] == 0


def test_several_sequences_at_once_are_profiled_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_llama(tmp_path / "small.gguf")
    command = ["export", str(tmp_path / "small.gguf"), "-o", str(tmp_path / "out"), "--batch", "3"]
    assert main([*command, "--context", "32", "--chunk", "8"]) == 0
    capsys.readouterr()
    found = profile(capsys, str(tmp_path / "out"), "--prompt", "8", "--tokens", "2")
    prefill, decode = found["sessions"].values()
    assert (prefill["runs"], decode["runs"]) == (1, 2)


def test_the_table_has_a_line_for_each_operator_and_says_what_it_leaves_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["profile", str(folder), "--prompt", "4", "--tokens", "2"]
    assert main([*command, "--by", "operators", "--top", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("of them") == 2
    assert "more (--top)" in printed
    assert "limits of" in printed
    assert "kinds" not in printed


def test_a_model_of_another_exporter_gets_what_its_inputs_ask_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = constant("w", np.ones((16, 8), np.float32))
    nodes = [node("MatMul", "x w", "m"), node("Softmax", "m", "y")]
    inputs = [spec("x", ("batch", "length", 16))]
    (tmp_path / "other.onnx").write_bytes(
        model(nodes, inputs, [spec("y", ("batch", "length", 8))], [weight])
    )
    path = str(tmp_path / "other.onnx")
    found = profile(capsys, path, "--prompt", "6", "--tokens", "5", "--dim", "batch=2")
    (session,) = found["sessions"].values()
    lines = {line["name"]: line for line in session["operators"]}
    assert lines["MatMul"]["calls"] == 5
    assert lines["MatMul"]["flops"] == 5 * 2 * 2 * 6 * 16 * 8
    assert lines["MatMul"]["bytes"] == 5 * 4 * (2 * 6 * 16 + 16 * 8 + 2 * 6 * 8)


def test_a_model_with_caches_gets_a_prompt_and_then_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [node("Concat", "past_key_values.0.key x", "present.0.key", axis=1)]
    inputs = [spec("x", (1, "length", 4)), spec("past_key_values.0.key", (1, "past_length", 4))]
    made = model(nodes, inputs, [spec("present.0.key", (1, "total", 4))])
    (tmp_path / "cached.onnx").write_bytes(made)
    found = profile(capsys, str(tmp_path / "cached.onnx"), "--prompt", "7", "--tokens", "2")
    (session,) = found["sessions"].values()
    kinds = [line["name"] for line in session["kinds"]]
    for past, rows in ((0, 7), (7, 1), (8, 1)):
        taken = f"float32 (1, {past}, 4) float32 (1, {rows}, 4)"
        assert f"Concat {taken} -> float32 (1, {past + rows}, 4)" in kinds


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (("--prompt", "30", "--tokens", "9"), "take 39 positions, and the model's context is 32"),
        (("--trace", "/nowhere/trace.json"), "No such file or directory"),
        (("--trace", "{folder}/decode.onnx"), "holds something else than a profile"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], further: tuple[str, ...], message: str
) -> None:
    before = (folder / "decode.onnx").read_bytes()
    given = [text.format(folder=folder) for text in further]
    assert main(["profile", str(folder), "--prompt", "4", "--tokens", "2", *given]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert (folder / "decode.onnx").read_bytes() == before


def test_an_option_that_is_no_dimension_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("batch", "=3", "batch=", "batch=-1", "batch=12345678901"):
        with pytest.raises(SystemExit):
            main(["profile", "model.onnx", "--dim", text])
        assert f"'{text}' is not NAME=N" in capsys.readouterr().err
