"""The scripts in examples/ run, and show what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
from onnx_iron.provider.library import get_library_path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(script: str, *arguments: Any) -> str:
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LFM2 without a tokenizer."""
    torch.manual_seed(0)
    config = transformers.Lfm2Config(
        vocab_size=320,
        hidden_size=48,
        intermediate_size=100,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        layer_types=["conv", "full_attention"],
    )
    folder = tmp_path_factory.mktemp("lfm2")
    transformers.Lfm2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    export_checkpoint(open_checkpoint(checkpoint), out, dtype="float32", context=64, chunk=8)
    return out


def likeliest(exported: Path, prompt: list[int]) -> list[str]:
    """What each token is followed by, as a session of ours says."""
    session = Session(exported)
    lines = []
    for token in prompt:
        logits = session.decode(input_ids=np.array([token], np.int32))["logits"]
        lines.append(f"{token} -> {int(logits[-1].argmax())}")
    return lines


def test_the_denoiser_lets_more_of_the_voice_through_in_any_chunks() -> None:
    first, second = run("denoiser.py").splitlines()
    before, after = map(float, re.findall(r"-?\d+\.\d", first))
    assert after - before > 6
    assert second == "in chunks as in one piece: True"


def test_a_state_bound_to_one_buffer_is_updated_in_place() -> None:
    rows = [float(line.split()[1]) for line in run("iobinding.py").splitlines()]
    assert rows == [0, 0.25, 0.75, 1.5, 2.5, 3.5]


def test_a_model_runs_with_numpy_and_onnxruntime_alone(exported: Path) -> None:
    assert "onnx_iron" not in re.sub(r'".*?"', "", (EXAMPLES / "numpy_only.py").read_text())
    assert run("numpy_only.py", exported).splitlines() == likeliest(exported, [1, 2, 3, 4])


def test_a_folder_answers(checkpoint: Path, tmp_path: Path) -> None:
    from models_tokenizer import save_tokenizer

    folder = shutil.copytree(checkpoint, tmp_path / "checkpoint")
    save_tokenizer(folder)
    assert run("lfm2.py", folder, "What is a river?").endswith("\n")


def test_a_host_in_cpp_gives_the_same_tokens(exported: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*")
    options = [f"-DONNXRUNTIME_LIBRARY={library}"]
    if "ONNXRUNTIME_INCLUDE" in os.environ:  # the folder of onnxruntime_cxx_api.h
        options.append(f"-DONNXRUNTIME_INCLUDE={os.environ['ONNXRUNTIME_INCLUDE']}")
    made = subprocess.run(
        ["cmake", "-S", str(EXAMPLES / "cpp_host"), "-B", str(build), *options],
        capture_output=True,
        text=True,
    )
    if made.returncode and "ONNXRUNTIME_INCLUDE" in made.stderr:
        pytest.skip("onnxruntime's C++ headers are not here; ONNXRUNTIME_INCLUDE names theirs")
    assert made.returncode == 0, made.stderr
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    # The wheel's library has another file name than the one that it is looked for by.
    (build / "libonnxruntime.so.1").symlink_to(library)
    command = [build / "host", exported / "decode.onnx", get_library_path(), "1", "2", "3", "4"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == likeliest(exported, [1, 2, 3, 4])
