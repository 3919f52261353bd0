"""The choice of tokens, against transformers' own logits processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from onnx_iron.models.generation import StoppedText
from onnx_iron.models.sampling import Sampler
from onnx_iron.models.text import Settings

VOCABULARY = 50


def expected(logits: np.ndarray, before: list[int], asked: Settings) -> np.ndarray:
    """transformers' probabilities."""
    steps = LogitsProcessorList()
    if asked.repetition_penalty != 1.0:
        steps.append(RepetitionPenaltyLogitsProcessor(asked.repetition_penalty))
    steps.append(TemperatureLogitsWarper(asked.temperature))
    if asked.top_k:
        steps.append(TopKLogitsWarper(asked.top_k))
    if asked.top_p < 1:
        steps.append(TopPLogitsWarper(asked.top_p))
    if asked.min_p:
        steps.append(MinPLogitsWarper(asked.min_p))
    ids = torch.tensor([before], dtype=torch.long)
    scores = steps(ids, torch.tensor(logits[None], dtype=torch.float64))
    return torch.softmax(scores, -1)[0].numpy()


@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 49, 80]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.4]),
    penalty=st.sampled_from([1.0, 1.3, 0.8]),
)
@settings(max_examples=100, deadline=None)
def test_tokens_come_as_often_as_by_transformers(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float, penalty: float
) -> None:
    random = np.random.default_rng(seed)
    logits = random.standard_normal(VOCABULARY) * 4
    before = random.integers(0, VOCABULARY, 7).tolist()
    asked = Settings(temperature, top_k, top_p, min_p, penalty)
    wanted = expected(logits, before, asked)
    sampler = Sampler(asked, seed)
    counts = np.zeros(VOCABULARY)
    for _ in range(400):
        counts[sampler(logits, before)] += 1
    assert not counts[wanted == 0].any()
    # Five standard deviations of a count: one in a few million is outside by chance.
    spread = np.sqrt(400 * wanted * (1 - wanted))
    assert (np.abs(counts - 400 * wanted) <= 5 * spread + 1e-6 + 3 * (wanted * 400 < 5)).all()


def test_a_temperature_of_0_takes_the_likeliest() -> None:
    logits = np.array([0.0, 3.0, 2.9, -1.0])
    assert Sampler(Settings())(logits) == 1
    assert Sampler(Settings(repetition_penalty=1.5))(logits, [1]) == 2


def test_the_same_seed_chooses_the_same_tokens() -> None:
    logits = np.zeros(1000)
    first, second, other = (Sampler(Settings(temperature=1.0), seed) for seed in (1, 1, 2))
    tokens = [first(logits) for _ in range(20)]
    assert tokens == [second(logits) for _ in range(20)]
    assert tokens != [other(logits) for _ in range(20)]


def test_ids_without_a_token_are_never_chosen() -> None:
    logits = np.array([0.0, 1.0, 5.0, 9.0])
    assert Sampler(Settings(), known=[0, 1])(logits) == 1
    sampler = Sampler(Settings(temperature=5.0), seed=0, known=[0, 1, 99])
    assert {sampler(logits) for _ in range(50)} == {0, 1}


def test_nan_and_no_finite_logit_are_errors() -> None:
    with pytest.raises(RuntimeError, match="gives NaN for token 1"):
        Sampler(Settings())(np.array([0.0, np.nan]))
    with pytest.raises(RuntimeError, match="no token a finite logit"):
        Sampler(Settings())(np.array([-np.inf, -np.inf]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0, expected 0 or more"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0, expected more than 0, and 1 at most"),
        ({"min_p": 1.5}, "min_p is 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampler(Settings(**changes))


class Letters:
    """A stream in which an id is its character."""

    def feed(self, index: int) -> str:
        return chr(index)

    def finish(self) -> str:
        return ""


@given(
    text=st.text("ab.", max_size=12),
    stops=st.lists(st.text("ab.", min_size=1, max_size=3), max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_a_stop_text_ends_the_text_before_it(text: str, stops: list[str]) -> None:
    shown = StoppedText(Letters(), stops)
    given = ""
    for character in text:
        given += shown.feed(ord(character))
        if shown.stopped:
            break
    given += shown.finish()
    # The first stop text to be complete, and of those that end there the one that begins first.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert given == text
        return
    seen = text[: min(ends)]
    assert given == seen[: min(seen.find(stop) for stop in stops if stop in seen)]
