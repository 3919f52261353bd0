"""Greedy generation with a session that keeps its state."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Model(Protocol):
    """What generation needs of ``onnx_iron.Session``."""

    def prefill(self, *, input_ids: npt.NDArray[np.int32]) -> Mapping[str, npt.NDArray[Any]]: ...

    def decode(self, *, input_ids: npt.NDArray[np.int32]) -> Mapping[str, npt.NDArray[Any]]: ...


class Stop(Enum):
    """Why an answer ended."""

    END = "ended by the model"
    LENGTH = "cut off by --max-tokens"
    CONTEXT = "cut off, the context is full"


@dataclass(frozen=True)
class Generation:
    """An answer's ids, without the id that ended it, and how long it took.

    Attributes:
        steps: How many decode steps ran.
    """

    ids: tuple[int, ...]
    stop: Stop
    prompt_tokens: int
    first_token_seconds: float
    decode_seconds: float
    steps: int

    @property
    def tokens_per_second(self) -> float | None:
        """The rate of the decode steps, None where there was none."""
        return self.steps / self.decode_seconds if self.steps and self.decode_seconds else None


def generate(
    model: Model,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    context: int,
    end_ids: Collection[int],
    emit: Callable[[int], None],
) -> Generation:
    """Answer ``prompt`` with the likeliest token at each step, and ``emit`` each as it comes.

    Prompt and answer together take at most ``context`` tokens of the cache.

    Raises:
        ValueError: The prompt is empty, or doesn't fit the context.
        RuntimeError: The model gives NaN.
    """
    check_prompt(prompt, context)
    ids: list[int] = []
    steps = 0
    started = time.perf_counter()
    token = _likeliest(model.prefill(input_ids=np.asarray(prompt, np.int32)))
    first = time.perf_counter()
    while True:
        if token in end_ids:
            stop = Stop.END
            break
        ids.append(token)
        emit(token)
        if len(ids) >= max_tokens:
            stop = Stop.LENGTH
            break
        if len(prompt) + steps >= context:
            stop = Stop.CONTEXT
            break
        token = _likeliest(model.decode(input_ids=np.asarray([token], np.int32)))
        steps += 1
    ended = time.perf_counter()
    return Generation(
        ids=tuple(ids),
        stop=stop,
        prompt_tokens=len(prompt),
        first_token_seconds=first - started,
        decode_seconds=ended - first,
        steps=steps,
    )


def check_prompt(prompt: Sequence[int], context: int) -> None:
    """Raise ValueError where a prompt is empty, or doesn't fit the context."""
    if not prompt:
        raise ValueError(f"the prompt has 0 tokens, expected 1..{context}; give one with a text")
    if len(prompt) > context:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens, expected 1..{context}; shorten it or export "
            "with a larger context"
        )


def _likeliest(outputs: Mapping[str, npt.NDArray[Any]]) -> int:
    """The largest of the last row of ``logits`` (rows, V); numpy's argmax finds NaN first."""
    logits = outputs["logits"][-1]
    token = int(np.argmax(logits))
    if np.isnan(logits[token]):
        raise RuntimeError(
            f"the model gives NaN for token {token}; the checkpoint is damaged, or a provider "
            "computes wrongly: compare with --provider stock --dtype float32"
        )
    return token
