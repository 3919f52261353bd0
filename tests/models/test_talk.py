"""``onnx-iron export``, ``generate``, ``chat`` and ``inspect`` on a Hugging Face folder."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from checkpoints import SIZES, saved
from models_tokenizer import CORPUS, save_tokenizer

from onnx_iron.models.exported import text_of
from onnx_iron.models.huggingface_text import huggingface_text
from onnx_iron.tools.main import main


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LFM2 with more logits than tokens."""
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": 320, "layer_types": ["conv", "full_attention"]}
    config = transformers.Lfm2Config(**sizes, block_multiple_of=16, eos_token_id=2)
    folder = tmp_path_factory.mktemp("lfm2")
    saved(transformers.Lfm2ForCausalLM(config).eval(), folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    assert main(["export", str(checkpoint), "-o", str(out), "--context", "256"]) == 0
    return out


def test_a_folder_s_tokenizer_gives_the_ids_of_transformers(checkpoint: Path) -> None:
    peer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    text = huggingface_text(checkpoint)
    ours = text.tokenizer
    for line in [*CORPUS, "", " a  b\n\n", "<|im_start|>user", "e\u0301 👍🏽", "\ud800x"]:
        safe = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids = peer(safe, add_special_tokens=False)["input_ids"]
        assert ours.encode(line) == ids
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=True)
        stream = ours.stream()
        assert "".join([*map(stream.feed, ids), stream.finish()]) == ours.decode(ids)
    assert ours.eos_ids == {0, 2}
    messages = [{"role": "user", "content": "A river"}]
    expected = peer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert text.template is not None
    assert text.template.encode(messages, ours) == expected


def test_control_tokens_that_users_type_stay_text(checkpoint: Path) -> None:
    text = huggingface_text(checkpoint)
    ids = text.tokenizer.encode("<|im_end|>", special=False)
    assert not set(ids) & set(text.tokenizer.control_tokens.values())
    assert text.tokenizer.decode(ids) == "<|im_end|>"
    assert text.template is not None
    spelled = [{"role": "user", "content": "<|im_end|>"}]
    chat = text.template.encode(spelled, text.tokenizer)
    assert chat.count(text.tokenizer.control_tokens["<|im_end|>"]) == 1


def test_an_exported_folder_has_all_that_it_takes_to_talk(exported: Path, checkpoint: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    models_of = {"prefill.onnx", "decode.onnx", "weights.bin"}
    assert names >= models_of | {"tokenizer.json", "chat_template.jinja", "config.json"}
    first, second = text_of(exported), huggingface_text(checkpoint)
    assert first.tokenizer.encode(CORPUS[0]) == second.tokenizer.encode(CORPUS[0])


def test_generate_gives_the_greedy_tokens_of_transformers(
    exported: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "float32"
    main(["export", str(checkpoint), str(out), "--dtype", "float32", "--context", "256"])
    capsys.readouterr()
    options = ["--greedy", "--raw", "--max-tokens", "12"]
    assert main(["generate", str(out), CORPUS[0], *options]) == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    peer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    ids = peer(CORPUS[0], return_tensors="pt", add_special_tokens=False)["input_ids"]
    # What has no token is never chosen.
    holes = list(range(len(peer), 320))
    wanted = model.generate(ids, max_new_tokens=12, do_sample=False, suppress_tokens=holes)
    text = peer.decode(wanted[0, ids.shape[1] :], skip_special_tokens=True)
    assert capsys.readouterr().out.rstrip("\n") == text.rstrip("\n")


def test_a_seed_gives_the_same_answer_again(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--temperature", "0.9", "--top-p", "0.95", "--max-tokens", "8"]
    answers = []
    for seed in ("1", "1", "2"):
        assert main(["generate", str(exported), "A river", "--seed", seed, *options]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != answers[2]


def test_a_prompt_may_come_from_stdin_and_a_stop_text_ends_the_answer(
    exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["generate", str(exported), "A river", "--max-tokens", "30"]) == 0
    whole = capsys.readouterr().out
    middle = whole[len(whole) // 2 : len(whole) // 2 + 2]
    monkeypatch.setattr("sys.stdin", io.StringIO("A river"))
    assert main(["generate", str(exported), "-", "--max-tokens", "30", "--stop", middle]) == 0
    output = capsys.readouterr()
    assert output.out.rstrip("\n") == whole[: whole.index(middle)].rstrip("\n")
    assert "ended by a stop text" in output.err


def test_a_chat_keeps_what_was_said(
    exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def chat(*lines: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert main(["chat", str(exported), "--max-tokens", "6", "--greedy"]) == 0
        return capsys.readouterr().out

    once = chat("A river", "the sea")
    first = chat("A river")
    assert once.startswith(first)
    assert chat("A river", "/reset", "A river") == first * 2
    assert chat("A river", "/undo", "A river", "the sea") == first + once
    assert chat("A river", "/nonsense", "", "the sea") == once


def failure(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 1
    lines = capsys.readouterr().err.splitlines()
    return lines[-1]


def test_a_folder_that_can_not_talk_is_refused_in_one_line(
    exported: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is no folder" in failure(capsys, "generate", tmp_path / "none", "x")
    assert "has no tokenizer.json" in failure(capsys, "generate", tmp_path, "x")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert "is no tokenizer" in failure(capsys, "generate", tmp_path, "x")
    line = failure(capsys, "generate", checkpoint, "x")
    assert "neither prefill.onnx nor decode.onnx" in line
    assert "temperature is -1.0" in failure(capsys, "generate", exported, "x", "--temperature=-1")
    assert "the prompt has 0 tokens" in failure(capsys, "generate", exported, "", "--raw")
    long = "A river runs. " * 200
    assert "expected 1..256; shorten it" in failure(capsys, "generate", exported, long)
    assert "--system needs a chat" in failure(
        capsys, "generate", exported, "x", "--raw", "--system", "y"
    )
    assert "give one folder" in failure(capsys, "export", checkpoint)


@pytest.mark.parametrize("name", ["decode.onnx", ""])
def test_inspect_tells_what_a_model_is_made_of(
    name: str, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(exported / name), "--json", "--provider", "iron"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == ({"model"} if name else {"prefill", "decode"})
    for role, described in found.items():
        model = onnx.load(exported / (name or f"{role}.onnx"), load_external_data=False)
        assert sum(described["operators"].values()) == len(model.graph.node)
        assert {s["input"] for s in described["states"]} | {
            port["name"] for port in described["inputs"]
        } == {value.name for value in model.graph.input}
        assert described["weight_bytes"] == sum(
            2 * int(np.prod(t.dims))
            if t.data_type == onnx.TensorProto.BFLOAT16
            else onnx.numpy_helper.to_array(t, str(exported)).nbytes
            for t in model.graph.initializer
        )
        assert sum(described["placement"].values()) > 0
    assert main(["inspect", str(exported / name)]) == 0
    assert "layers.0.operator.conv" in capsys.readouterr().out


def test_inspect_reads_other_people_s_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.onnx"
    torch.onnx.export(
        torch.nn.Linear(4, 3), (torch.zeros(2, 4),), str(path), dynamo=False, input_names=["x"]
    )
    assert main(["inspect", str(path), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)["model"]
    assert described["inputs"] == [{"name": "x", "dtype": "FLOAT", "shape": [2, 4]}]
    assert described["operators"] == {"Gemm": 1}
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert "bad.onnx" in failure(capsys, "inspect", tmp_path / "bad.onnx")


@pytest.fixture(scope="module")
def of_two(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("of_two")
    sizes = ["--context", "64", "--batch", "2"]
    assert main(["export", str(checkpoint), "-o", str(out), *sizes]) == 0
    return out


def test_a_batch_of_prompts_has_the_answers_of_each(
    exported: Path, of_two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--raw", "--max-tokens", "6", "--temperature", "0.9", "--top-k", "0"]
    capsys.readouterr()
    for prompts in (["b", "x"], ["a river"]):
        expected = []
        for number in range(2):
            seed = ["--seed", str(5 + number)]
            assert (
                main(["generate", str(exported), prompts[number % len(prompts)], *options, *seed])
                == 0
            )
            expected.append(f"[{number + 1}] {capsys.readouterr().out}")
        assert main(["generate", str(of_two), *prompts, *options, "--seed", "5"]) == 0
        assert capsys.readouterr().out == "".join(expected)


def test_prompts_that_are_no_batch_are_refused(
    exported: Path, of_two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        (exported, ["a", "b"], "2 prompts, and .* of 1 at a time; export it with --batch 2"),
        (of_two, ["a", "b", "c"], "3 prompts, and .* of 2 at a time; give as many"),
        (of_two, ["a", "a river and a stone"], "tokens; those of a batch have one length"),
    ]
    for folder, prompts, message in cases:
        assert main(["generate", str(folder), *prompts, "--raw"]) == 1
        assert re.search(message, capsys.readouterr().err)
    assert main(["chat", str(of_two)]) == 1
    assert "a chat is one; export it without --batch" in capsys.readouterr().err
