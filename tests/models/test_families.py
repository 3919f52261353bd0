"""Every family's checkpoints, exported and run, against transformers' own model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import SMALL, logits_of, prompt, random_model, saved

from onnx_iron import Session
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint

PROMPT, STEPS, CONTEXT = 70, 20, 320
# Sums in float32 in another order than transformers', through a few layers; logits are near 4.
CLOSE = 2e-4


@cache
def model_of(name: str) -> Any:
    return random_model(SMALL[name])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(name: str) -> Path:
        path = tmp_path_factory.mktemp("checkpoint")
        return saved(model_of(name), path)

    return make


def exported(source: Path, target: Path, **options: Any) -> Path:
    settings = {"dtype": "float32", "context": CONTEXT, "chunk": 16, **options}
    export_checkpoint(open_checkpoint(source), target, **settings)
    return target


def answer(session: Session, ids: np.ndarray[Any, Any]) -> tuple[list[int], list[Any]]:
    """The likeliest tokens after a prompt, and the logits of each."""
    rows = [session.prefill(input_ids=ids)["logits"][-1]]
    tokens = [int(rows[-1].argmax())]
    while len(tokens) < STEPS:
        rows.append(session.decode(input_ids=np.array(tokens[-1:], np.int32))["logits"][-1])
        tokens.append(int(rows[-1].argmax()))
    return tokens, rows


def assert_like_transformers(session: Session, name: str) -> None:
    ids = prompt(PROMPT)
    tokens, rows = answer(session, ids)
    # Teacher-forced with our tokens: they are its greedy ones if each is its likeliest next.
    expected = logits_of(model_of(name), np.concatenate([ids, tokens]).astype(np.int32))
    expected = expected[PROMPT - 1 : -1]
    assert np.abs(np.stack(rows) - expected).max() < CLOSE
    assert tokens == expected.argmax(axis=1).tolist()


@pytest.mark.parametrize("name", SMALL)
def test_a_family_continues_a_prompt_as_transformers_does(
    name: str, folder: Any, tmp_path: Path
) -> None:
    session = Session(exported(folder(name), tmp_path))
    assert_like_transformers(session, name)
    assert all(placement.complete for placement in session.placement().values())


@pytest.mark.parametrize("name", ["llama", "qwen3", "granite", "lfm2", "mamba"])
@pytest.mark.parametrize("dialect", ["iron", "standard"])
def test_a_family_runs_on_onnxruntime_alone(
    name: str, dialect: str, folder: Any, tmp_path: Path
) -> None:
    path = exported(folder(name), tmp_path, dialect=dialect)
    assert_like_transformers(Session(path, provider="stock"), name)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_chunks_leave_the_same_states_and_tokens(
    name: str, dtype: str, folder: Any, tmp_path: Path
) -> None:
    ids = prompt(PROMPT)
    found = []
    for chunk in (1, 7, 64, 256):
        path = exported(folder(name), tmp_path / str(chunk), dtype=dtype, chunk=chunk)
        session = Session(path)
        if chunk == 1:
            assert [file.name for file in path.glob("*.onnx")] == ["decode.onnx"]
            for token in ids[:-1]:
                session.decode(input_ids=np.array([token], np.int32))
            tokens = [int(session.decode(input_ids=ids[-1:])["logits"][-1].argmax())]
        else:
            tokens = [int(session.prefill(input_ids=ids)["logits"][-1].argmax())]
        while len(tokens) < STEPS:
            last = np.array(tokens[-1:], np.int32)
            tokens.append(int(session.decode(input_ids=last)["logits"][-1].argmax()))
        rows = PROMPT + STEPS - 1
        states = {n: session.state(n) for n in session.states}
        # Behind the rows that ran, a cache may hold a chunk's padding.
        valid = {n: s[:rows] if s.shape[0] == CONTEXT else s for n, s in states.items()}
        found.append((tokens, {n: state.tobytes() for n, state in valid.items()}))
    assert all(other == found[0] for other in found[1:])
