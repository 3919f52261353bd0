"""What `onnx-iron` does with checkpoints, folders and options that are wrong: one line, a code."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from checkpoints import SMALL, random_model, saved

from onnx_iron.models import huggingface
from onnx_iron.tools.main import main

ROOT = Path(__file__).parent.parent.parent
UP = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in one file, and one in shards."""
    folder, model = tmp_path_factory.mktemp("checkpoints"), random_model(SMALL["llama"])
    saved(model, folder / "whole")
    saved(model, folder / "shards", max_shard_size="40KB")
    return folder


@pytest.fixture
def checkpoint(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "whole", tmp_path / "in"))


@pytest.fixture
def shards(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "shards", tmp_path / "in"))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def command(*arguments: Any) -> int:
    """The exit code of a command line, also of one that doesn't parse."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 1) -> str:
    """The one line, beside the usage of a command that doesn't parse, that says what is wrong."""
    assert command(*arguments) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    errors = [line for line in output.err.splitlines() if ": error: " in line]
    assert len(errors) == 1
    assert output.err.strip().endswith(errors[0])
    return errors[0]


def export_options(folder: Path, out: Path) -> list[Any]:
    return ["export", folder, "-o", out, "--context", "32", "--chunk", "4"]


def tensors(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the tensors of a safetensors file."""
    held = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items()}
    change(held)
    safetensors.torch.save_file(held, path)


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def unknown_field(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "new_trick": 3}))


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 5)


def linked_to_nothing(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "blob")


def other_shape(folder: Path) -> None:
    tensors(folder / "model.safetensors", lambda held: held.update({UP: held[UP][:-1]}))


def other_dtype(dtype: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tensors(folder / "model.safetensors", lambda held: held.update({UP: held[UP].to(dtype)}))

    return change


def extra_tensor(folder: Path) -> None:
    tensors(folder / "model.safetensors", lambda held: held.update(extra=torch.zeros(2)))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_config, "in has no config.json; give a folder as save_pretrained writes it"),
        (unknown_field, "config.json: 'new_trick' is 3, and what it changes in a model of type"),
        (truncated, "model.safetensors is not a whole safetensors file"),
        (linked_to_nothing, "one is a link to a file that is gone; download it again"),
        (other_shape, f"tensor '{UP}' is (99, 48), expected (100, 48) by the configuration"),
        (other_dtype(torch.float64), "is stored as F64, expected F32, F16, BF16; save the model"),
        (other_dtype(torch.int8), "is stored as I8, expected F32, F16, BF16; use a checkpoint th"),
        (extra_tensor, "tensor 'extra' has no place in the model that the configuration desc"),
    ],
)
def test_a_folder_that_is_no_whole_checkpoint_is_one_line_and_nothing_is_written(
    spoil: Callable[[Path], None],
    message: str,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(checkpoint)
    line = refusal(capsys, *export_options(checkpoint, tmp_path / "out"))
    assert message in line
    assert not (tmp_path / "out").exists()


def missing_shard(folder: Path) -> None:
    max(folder.glob("*.safetensors")).unlink()


def missing_tensor(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"]["model.other.weight"] = max(folder.glob("*.safetensors")).name
    index.write_text(json.dumps(values))


def doubled(folder: Path) -> None:
    first, second = sorted(folder.glob("*.safetensors"))[:2]
    name, tensor = next(iter(safetensors.torch.load_file(first).items()))
    tensors(second, lambda held: held.update({name: tensor}))


def no_map(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (missing_shard, "is not there, and model.safetensors.index.json names it; download it"),
        (missing_tensor, "has no tensor 'model.other.weight', which model.safetensors.index.json"),
        (doubled, "too; which is the model's can't be told, download it again"),
        (no_map, "'weight_map' is no map of tensors to files"),
    ],
)
def test_shards_that_are_not_what_the_index_says_are_one_line(
    spoil: Callable[[Path], None],
    message: str,
    shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(shards)
    assert message in refusal(capsys, *export_options(shards, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_path_that_is_no_checkpoint_says_what_to_give_instead(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command(*export_options(checkpoint, out)) == 0
    assert "has no tokenizer.json: the export runs" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "nowhere", "nowhere: no such file or folder; give a Hugging Face folder, or"),
        (tmp_path / "loop", "loop: a link to nothing; give a Hugging Face folder, or"),
        (tmp_path / "empty", "empty has no config.json; give a folder as save_pretrained"),
        (checkpoint / "model.safetensors", f"give the folder that it is in, {checkpoint}"),
        (checkpoint / "config.json", f"give the folder that it is in, {checkpoint}"),
        (out / "decode.onnx", "decode.onnx is exported already; give a checkpoint, or open it"),
        (out, "out is exported already; give the checkpoint itself"),
    ):
        assert message in refusal(capsys, *export_options(path, tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_a_folder_and_files_behind_links_are_the_folder_and_the_files(
    checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").symlink_to(checkpoint)
    (tmp_path / "files").mkdir()
    for file in checkpoint.iterdir():
        (tmp_path / "files" / file.name).symlink_to(file)
    for name in ("in", "folder", "files"):
        assert command(*export_options(tmp_path / name, tmp_path / f"out {name}")) == 0
    assert contents(tmp_path / "out in") == contents(tmp_path / "out folder")
    assert contents(tmp_path / "out in") == contents(tmp_path / "out files")


def test_a_tokenizer_that_is_missing_or_broken_is_said_by_generate_and_chat(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command(*export_options(checkpoint, out)) == 0
    capsys.readouterr()
    for arguments in (["generate", out, "hello"], ["chat", out]):
        assert f"{out} has no tokenizer.json, which turns texts" in refusal(capsys, *arguments)
    (out / "tokenizer.json").write_text("{")
    for arguments in (["generate", out, "hello"], ["chat", out]):
        assert f"{out / 'tokenizer.json'} is no tokenizer" in refusal(capsys, *arguments)


def test_a_checkpoint_s_own_folder_is_not_written_to_but_one_inside_it_is(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkpoint / "tokenizer.json").write_text("{}")
    before = contents(checkpoint)
    (tmp_path / "link").symlink_to(checkpoint)
    for out in (checkpoint, tmp_path / "link", checkpoint / "." / ".." / "in"):
        line = refusal(capsys, *export_options(checkpoint, out))
        assert "holds a checkpoint (model.safetensors), whose files the export would repl" in line
    assert contents(checkpoint) == before
    for _ in range(2):
        assert command(*export_options(checkpoint, checkpoint / "out")) == 0
    assert contents(checkpoint) == before
    # Another checkpoint's files are as precious, and so are a tokenizer's alone.
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")
    capsys.readouterr()
    line = refusal(capsys, *export_options(checkpoint, other))
    assert "holds a checkpoint (tokenizer.json)" in line
    assert list(contents(other)) == ["tokenizer.json"]


def test_a_folder_that_can_t_be_written_to_is_said_before_anything_is_read(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o555)
    if os.geteuid() == 0:  # whom no mode holds back
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != sealed)
    line = refusal(capsys, *export_options(tmp_path / "nowhere", sealed / "deep" / "out"))
    assert f"{sealed / 'deep' / 'out'}: {sealed} can't be written to; give another folder" in line
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    line = refusal(capsys, *export_options(checkpoint, tmp_path / "loop"))
    assert f"{tmp_path / 'loop'} is not a folder; give another to write the files to" in line


def test_a_disk_that_is_full_is_one_line_with_the_folder_and_the_old_model_stays(
    checkpoint: Path, tmp_path: Path
) -> None:
    """Files may have 20 KiB, which the system refuses as it does on a full disk."""
    out = tmp_path / "out"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20480, 20480))

    for old in (False, True):
        if old:
            assert command(*export_options(checkpoint, out)) == 0
        before = contents(out) if old else {}
        arguments = [*export_options(checkpoint, out), "--dtype", "float32"]
        run = subprocess.run(
            [sys.executable, "-m", "onnx_iron.tools.main", *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=limited,
        )
        assert run.returncode == 1
        assert run.stdout == ""
        assert (
            run.stderr.splitlines()[-1] == f"onnx-iron: error: [Errno 27] File too large: '{out}'"
        )
        assert out.exists() == old
        assert not old or contents(out) == before


def test_an_export_that_is_interrupted_exits_with_130_and_the_old_model_stays(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, load = tmp_path / "out", huggingface._load
    assert command(*export_options(checkpoint, out)) == 0
    before, calls = contents(out), []
    capsys.readouterr()

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return load(*arguments)

    monkeypatch.setattr(huggingface, "_load", interrupted)
    assert command(*export_options(checkpoint, out), "--dtype", "float32") == 130
    output = capsys.readouterr()
    assert output.err.strip().splitlines()[-1] == "onnx-iron: interrupted"
    assert output.out == ""
    assert contents(out) == before
    assert command(*export_options(checkpoint, out), "--dtype", "float32") == 0


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--frobnicate"], "unrecognized arguments: --frobnicate", 2),
        (["--dtype", "float16"], "argument --dtype: invalid choice: 'float16'", 2),
        (["--dialect", "tosa"], "argument --dialect: invalid choice: 'tosa'", 2),
        (["--context", "0"], "argument --context: '0' is not an integer of 1 or more", 2),
        (["--context", "many"], "argument --context: 'many' is not an integer of 1 or more", 2),
        (["--output", ""], "argument -o/--output: '' is no path of a folder", 2),
        (["--context", "4096"], "--context is 4096, expected 1..2048, what the model was made", 1),
        (["--chunk", "33"], "--chunk is 33, expected 2..32, the context", 1),
    ],
)
def test_an_option_that_is_unknown_or_out_of_its_range_is_named(
    options: list[str],
    message: str,
    code: int,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*export_options(checkpoint, tmp_path / "out"), *options]
    assert message in refusal(capsys, *arguments, code=code)
    assert not (tmp_path / "out").exists()
