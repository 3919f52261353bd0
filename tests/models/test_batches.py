"""Exports that run several sequences at once, against each sequence by itself and transformers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import SMALL, logits_of, prompt, random_model, saved

from onnx_iron import Session
from onnx_iron.conformance.programs import same_bits
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint

SEQUENCES, PROMPT, STEPS, CONTEXT, CHUNK = 3, 21, 5, 48, 8
FAMILIES = ["llama", "llama 3", "qwen2", "qwen3", "mistral with a window", "granite"]
FAMILIES += ["phi3, a part of each head turned", "gemma2", "gemma3", "lfm2"]
FAMILIES += ["lfm2 with biases, untied", "mamba", "falcon_mamba"]
# Sums in float32 in another order than transformers', through a few layers; logits are near 4.
CLOSE = 2e-4


@cache
def model_of(name: str) -> Any:
    return random_model(SMALL[name])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def checkpoint(name: str) -> Path:
        return saved(model_of(name), tmp_path_factory.mktemp("checkpoint"))

    @cache
    def make(name: str, **options: Any) -> Path:
        path = tmp_path_factory.mktemp("exported")
        settings = {"dtype": "float32", "context": CONTEXT, "chunk": CHUNK, **options}
        export_checkpoint(open_checkpoint(checkpoint(name)), path, **settings)
        return path

    return make


def prompts() -> np.ndarray[Any, Any]:
    return np.stack([prompt(PROMPT, seed=seed) for seed in range(SEQUENCES)])


def logits_along(session: Session, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The logits of the last token of a prompt, and of the likeliest ones after it: (..., steps,
    vocabulary).
    """
    rows = [session.prefill(input_ids=ids)["logits"]]
    for _ in range(STEPS):
        tokens = rows[-1].argmax(-1).astype(np.int32)
        rows.append(session.decode(input_ids=tokens)["logits"])
    return np.concatenate(rows, axis=-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_has_the_bits_of_separate_sessions(name: str, dtype: str, exported: Any) -> None:
    together = Session(exported(name, dtype=dtype, batch=SEQUENCES))
    assert all(placement.complete for placement in together.placement().values())
    logits = logits_along(together, prompts())
    alone = Session(exported(name, dtype=dtype))
    for number, ids in enumerate(prompts()):
        alone.reset()
        assert same_bits(logits[number], logits_along(alone, ids))
        assert together.position == alone.position == PROMPT + STEPS
        for state in alone.states:
            one, own = together.state(state)[number], alone.state(state)
            # Behind the rows that ran, a cache may hold a chunk's padding.
            rows = alone.position if own.shape[0] == CONTEXT else len(own)
            assert same_bits(one[:rows], own[:rows]), state


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "lfm2"])
@pytest.mark.parametrize("dialect", ["iron", "standard"])
def test_a_batch_runs_on_onnxruntime_alone_as_transformers_does(
    name: str, dialect: str, exported: Any
) -> None:
    session = Session(exported(name, batch=SEQUENCES, dialect=dialect), provider="stock")
    logits = logits_along(session, prompts())
    for number, ids in enumerate(prompts()):
        answer = logits[number].argmax(-1)[:-1]
        expected = logits_of(model_of(name), np.concatenate([ids, answer]).astype(np.int32))
        assert np.abs(logits[number] - expected[PROMPT - 1 :]).max() < CLOSE


@pytest.mark.parametrize("logits", ["last", "all"])
def test_logits_of_a_batch_have_an_axis_for_its_rows(logits: str, exported: Any) -> None:
    session = Session(exported("qwen3", batch=SEQUENCES, logits=logits))
    given = session.prefill(input_ids=prompts())["logits"]
    assert given.shape[:2] == (SEQUENCES, PROMPT if logits == "all" else 1)
    alone = Session(exported("qwen3", logits=logits))
    assert same_bits(given[1], alone.prefill(input_ids=prompts()[1])["logits"])


def test_a_session_knows_how_many_sequences_it_runs(exported: Any) -> None:
    for name in ("llama", "lfm2"):
        assert Session(exported(name, batch=SEQUENCES)).batch == SEQUENCES
        assert Session(exported(name)).batch is None
    assert Session(exported("llama", batch=SEQUENCES, chunk=1)).batch == SEQUENCES


def test_a_batch_of_one_is_a_sequence(exported: Any) -> None:
    together = Session(exported("lfm2", batch=1))
    alone = Session(exported("lfm2"))
    ids = prompt(PROMPT)
    assert same_bits(logits_along(together, ids[None])[0], logits_along(alone, ids))


def test_a_batch_can_be_decoded_from_the_first_token_on(exported: Any) -> None:
    session = Session(exported("llama", batch=SEQUENCES, chunk=1))
    for column in prompts().T:
        given = session.decode(input_ids=column[:, None])["logits"]
    assert session.position == PROMPT
    whole = Session(exported("llama", batch=SEQUENCES))
    assert same_bits(given, whole.prefill(input_ids=prompts())["logits"])


def test_a_batch_goes_back_and_forks_as_a_sequence_does(exported: Any) -> None:
    session = Session(exported("llama", batch=SEQUENCES))
    expected = logits_along(session, prompts())
    session.rewind(STEPS + 4)
    other = session.fork()
    for one in (session, other):
        last = one.prefill(input_ids=prompts()[:, -4:])["logits"]
        assert same_bits(last[:, 0], expected[:, 0])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 2, 3], [4, 5], [6]], r"'input_ids' has sequences of 3, 2, 1 entries.*one length"),
        (
            prompt(5),
            r"'input_ids' has shape \(5,\), expected int32 \(3, any\): 3 sequences of one",
        ),
        (prompt(10).reshape(2, 5), r"'input_ids' has shape \(2, 5\), expected int32 \(3, any\)"),
    ],
    ids=["of several lengths", "of one sequence", "of too few"],
)
def test_what_is_no_batch_is_refused_before_anything_runs(
    ids: Any, message: str, exported: Any
) -> None:
    session = Session(exported("lfm2", batch=SEQUENCES))
    with pytest.raises(ValueError, match=message):
        session.prefill(input_ids=ids)
    for call in (session, session.decode):
        with pytest.raises(ValueError, match=r"'input_ids' has s(hape|equences of 3, 2, 1)"):
            call(input_ids=ids)
    assert session.position == 0
    assert not any(session.state(name).any() for name in session.states)
