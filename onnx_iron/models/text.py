"""Text for a model and back: its tokenizer, chat template and the settings to generate with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from onnx_iron.models.chat import ChatTemplate


class Stream(Protocol):
    """Decodes ids one by one, and gives text only where a character is complete."""

    def feed(self, index: int) -> str: ...

    def finish(self) -> str: ...


class TextTokenizer(Protocol):
    """Text to token ids and back.

    Attributes:
        eos_ids: The ids that end an answer.
        control_tokens: The ids of the tokens that a model's maker puts between texts, by spelling.
    """

    eos_ids: frozenset[int]
    control_tokens: Mapping[str, int]

    def encode(self, text: str, *, add_bos: bool = False, special: bool = True) -> list[int]: ...

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str: ...

    def stream(self, *, skip_special: bool = True) -> Stream: ...

    def ids(self) -> Sequence[int]:
        """The ids that stand for a token."""
        ...


@dataclass(frozen=True)
class Settings:
    """How a model's maker would have it sampled; what is not said is left at what changes nothing.

    Attributes:
        temperature: what logits are divided by; 0 takes the likeliest token.
        top_k: only so many of the likeliest; 0 for all.
        top_p: only the likeliest that together have this probability.
        min_p: only those that have this part of the likeliest one's probability.
        repetition_penalty: what logits of tokens that were there are divided by, where positive,
            or multiplied, where negative.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class Text:
    """What a model needs to read and write text.

    Attributes:
        template: None where the model is not made for chats.
    """

    tokenizer: TextTokenizer
    template: ChatTemplate | None
    settings: Settings
