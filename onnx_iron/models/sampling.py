"""The choice of the next token from a model's logits."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_iron.models.text import Settings

Logits = npt.NDArray[np.float64]


class Sampler:
    """Chooses tokens as its settings say, the same ones for the same seed.

    In transformers' order: the repetition penalty, the temperature, ``top_k``, ``top_p``,
    ``min_p``. A temperature of 0 takes the likeliest token.

    Args:
        settings: what to leave of the distribution.
        seed: of the random numbers; None for others at each run.
        known: the ids that stand for a token; a model may have logits for more, which are never
            chosen. None for all.

    Raises:
        ValueError: a setting out of its range.
    """

    def __init__(
        self, settings: Settings, seed: int | None = None, known: Collection[int] | None = None
    ) -> None:
        check_settings(settings)
        self._settings, self._seed = settings, seed
        self._random = np.random.default_rng(seed)
        self._known = None if known is None else np.asarray(sorted(known), np.int64)

    def seeded(self, more: int) -> Sampler:
        """A sampler with the same settings whose seed is so much more, where there is one."""
        seed = None if self._seed is None else self._seed + more
        known = None if self._known is None else self._known.tolist()
        return Sampler(self._settings, seed, known)

    def __call__(self, logits: npt.ArrayLike, before: Collection[int] = ()) -> int:
        """The next token.

        Args:
            logits: (vocabulary,).
            before: the ids of the text so far, which a repetition penalty makes less likely.

        Raises:
            RuntimeError: the model gives NaN, or no finite logit.
        """
        scores = self._allowed(np.asarray(logits, np.float64))
        penalty = self._settings.repetition_penalty
        if penalty != 1.0 and before:
            seen = np.unique(np.asarray([*before], np.int64))
            seen = seen[seen < len(scores)]
            there = scores[seen]
            scores[seen] = np.where(there > 0, there / penalty, there * penalty)
        if self._settings.temperature == 0.0:
            return int(scores.argmax())
        probabilities = self.probabilities(scores)
        # The first token whose sum exceeds the number: rounding leaves the last sum below 1.
        sums = probabilities.cumsum()
        place = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return min(place, int(np.flatnonzero(probabilities)[-1]))

    def probabilities(self, scores: Logits) -> Logits:
        """What is left of the distribution, (vocabulary,), adding up to 1."""
        settings = self._settings
        scores = scores / settings.temperature
        if settings.top_k and settings.top_k < len(scores):
            least = np.partition(scores, -settings.top_k)[-settings.top_k]
            scores = np.where(scores < least, -math.inf, scores)
        if settings.top_p < 1.0:
            order = np.argsort(scores, kind="stable")
            sums = _softmax(scores)[order].cumsum()
            gone = order[sums <= 1.0 - settings.top_p]
            scores[gone[gone != order[-1]]] = -math.inf
        chances = _softmax(scores)
        if settings.min_p > 0.0:
            chances = np.where(chances < settings.min_p * chances.max(), 0.0, chances)
        left: Logits = chances / chances.sum()
        return left

    def _allowed(self, logits: Logits) -> Logits:
        token = int(np.argmax(logits))  # numpy's argmax finds NaN first
        if np.isnan(logits[token]):
            raise RuntimeError(
                f"the model gives NaN for token {token}; the checkpoint is damaged, or a provider "
                "computes wrongly: compare with --provider stock --dtype float32"
            )
        scores = logits.copy()
        if self._known is not None:
            scores = np.full_like(logits, -math.inf)
            known = self._known[self._known < len(logits)]
            scores[known] = logits[known]
        if scores.max() == -math.inf:
            raise RuntimeError("the model gives no token a finite logit; the checkpoint is damaged")
        return scores


def check_settings(settings: Settings) -> None:
    """Refuse settings that mean nothing.

    Raises:
        ValueError: one is out of its range.
    """
    ranges: Iterable[tuple[str, Any, bool, str]] = (
        ("temperature", settings.temperature, settings.temperature >= 0, "0 or more"),
        ("top_k", settings.top_k, settings.top_k >= 0, "0 (for all) or more"),
        ("top_p", settings.top_p, 0 < settings.top_p <= 1, "more than 0, and 1 at most"),
        ("min_p", settings.min_p, 0 <= settings.min_p <= 1, "0..1"),
        (
            "repetition_penalty",
            settings.repetition_penalty,
            settings.repetition_penalty > 0,
            "more than 0",
        ),
    )
    for name, value, right, expected in ranges:
        if not (math.isfinite(value) and right):
            raise ValueError(f"{name} is {value}, expected {expected}")


def _softmax(scores: Logits) -> Logits:
    powers = np.exp(scores - scores.max())
    result: Logits = powers / powers.sum()
    return result
