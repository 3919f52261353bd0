"""The tokenizer that a GGUF file describes: text to token ids and back, also piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from onnx_iron.models.special_tokens import SpecialTokens
from onnx_iron.models.tokenizer_kinds import byte_level, sentencepiece
from onnx_iron.models.vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

# Control tokens that end an answer, whatever the file's eos_token_id is: chat models end a turn
# with one of them and a text with another.
END_NAMES = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_BUILDERS = {"gpt2": byte_level, "llama": sentencepiece}


class Tokenizer:
    """Encodes text and decodes ids with the vocabulary in a GGUF file's metadata.

    Attributes:
        bos_id: The id that begins a text, or None.
        eos_ids: The ids that end an answer.
        control_tokens: The ids of the tokens that a model's maker puts between texts, by spelling.
        adds_bos: Whether a text that isn't a chat begins with ``bos_id``.

    Raises:
        ValueError: A key that is missing or contradicts another, or a kind of tokenizer that
            isn't implemented; the text begins with ``source``.
    """

    def __init__(self, metadata: Mapping[str, Any], source: str = "tokenizer") -> None:
        vocabulary = Vocabulary(metadata, source)
        builder = _BUILDERS.get(vocabulary.model)
        if builder is None:
            raise vocabulary.error(
                f"tokenizer.ggml.model is {vocabulary.model!r}, expected "
                f"{' or '.join(repr(name) for name in _BUILDERS)}; use a model with one of these"
            )
        built = builder(vocabulary)
        self._encode = built.encode
        self._strips_space = built.strips_space
        self._strips_spaces = built.strips_spaces
        self._control = vocabulary.of_type(CONTROL) | vocabulary.of_type(UNKNOWN)
        user_defined = vocabulary.of_type(USER_DEFINED)
        self.control_tokens: Mapping[str, int] = MappingProxyType(
            {vocabulary.tokens[index]: index for index in sorted(self._control)}
        )
        parts = {vocabulary.tokens[index]: index for index in user_defined}
        self._parts = SpecialTokens(parts)
        self._specials = SpecialTokens(parts | dict(self.control_tokens))
        as_spelled = self._control | user_defined
        self._bytes = [
            token.encode() if index in as_spelled else built.spell(token)
            for index, token in enumerate(vocabulary.tokens)
        ]
        for index in vocabulary.of_type(BYTE):
            self._bytes[index] = vocabulary.byte(index)
        self.bos_id = vocabulary.token_id("bos_token_id")
        self.adds_bos = vocabulary.flag("add_bos_token", built.adds_bos)
        if self.adds_bos and self.bos_id is None:
            raise vocabulary.error(
                "tokenizer.ggml.add_bos_token is true and bos_token_id is missing, expected both"
            )
        named = (vocabulary.token_id(key) for key in _END_KEYS)
        ends = {index for index in named if index is not None}
        ends.update(i for i in self._control if vocabulary.tokens[i] in END_NAMES)
        self.eos_ids = frozenset(ends)
        self._tokens: Sequence[str] = vocabulary.tokens

    @property
    def vocab_size(self) -> int:
        """How many tokens there are; ids are 0..vocab_size-1."""
        return len(self._tokens)

    def ids(self) -> range:
        """The ids that stand for a token."""
        return range(len(self._tokens))

    def token(self, index: int) -> str:
        """The token with that id, as the file spells it."""
        return self._tokens[self._checked(index)]

    def encode(self, text: str, *, add_bos: bool = False, special: bool = True) -> list[int]:
        """Return the ids of ``text``, in which the names of control tokens stand for them.

        Pass ``special=False`` for what users type or files hold: there, the name of a control
        token is a text like any other. ``add_bos`` puts ``bos_id`` first where the model wants one
        (``adds_bos``). A lone surrogate, which no UTF-8 text holds, becomes U+FFFD.
        """
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids = [self.bos_id] if add_bos and self.adds_bos and self.bos_id is not None else []
        for piece in (self._specials if special else self._parts).split(whole):
            ids += [piece] if isinstance(piece, int) else self._encode(piece)
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of ``ids``; bytes that aren't UTF-8 become U+FFFD.

        ``skip_special`` leaves control tokens out.

        Raises:
            ValueError: An id outside the vocabulary.
        """
        stream = self.stream(skip_special=skip_special)
        return "".join([*(stream.feed(index) for index in ids), stream.finish()])

    def stream(self, *, skip_special: bool = True) -> StreamDecoder:
        """Return a decoder that is fed one id at a time."""
        return StreamDecoder(self, skip_special)

    def _piece(self, index: int, skip_special: bool) -> bytes:
        """The bytes that an id stands for; none for a control token that is skipped."""
        if self._checked(index) in self._control and skip_special:
            return b""
        return self._bytes[index]

    def _checked(self, index: int) -> int:
        if not 0 <= index < len(self._tokens):
            raise ValueError(f"token id is {index}, expected 0..{len(self._tokens) - 1}")
        return index


class StreamDecoder:
    """Decodes ids one by one, and gives text only where a character is complete."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strips_space = tokenizer._strips_space

    def feed(self, index: int) -> str:
        """Take one more id; return the text that is complete now, which may be empty."""
        text = self._decoder.decode(self._tokenizer._piece(int(index), self._skip_special))
        if text and self._strips_space:
            # SentencePiece puts a space before a text, which isn't part of it.
            text = text.removeprefix(" ")
            self._strips_space = self._tokenizer._strips_spaces and not text
        return text

    def finish(self) -> str:
        """Return what is left: U+FFFD where the ids end inside a character."""
        return self._decoder.decode(b"", final=True)
