"""The tokenizer of a Hugging Face folder, and what its other files say about texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream

from onnx_iron.models.chat import ChatTemplate
from onnx_iron.models.fields import Fields
from onnx_iron.models.json_file import read_object_if_there
from onnx_iron.models.kept_files import (
    CONFIG,
    GENERATION,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from onnx_iron.models.text import Settings, Text
from onnx_iron.models.tokenizer import END_NAMES

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def huggingface_text(folder: Path) -> Text:
    """Read the tokenizer, chat template and generation settings of a folder.

    Raises:
        FileNotFoundError: There is no tokenizer.json.
        ValueError: A file that can't be read, or an entry that isn't what it should be.
    """
    source = folder / TOKENIZER
    if not source.is_file():
        remedy = "save it with the model (AutoTokenizer.from_pretrained(...).save_pretrained(...))"
        raise FileNotFoundError(
            f"{folder} has no {TOKENIZER}, which turns texts into ids; {remedy}"
        )
    config = read_object_if_there(folder / TOKENIZER_CONFIG)
    ends = _end_ids(folder / CONFIG) | _end_ids(folder / GENERATION)
    special = _special_tokens(config)
    tokenizer = HuggingFaceTokenizer(source, special.get("eos_token"), ends)
    return Text(
        tokenizer, _template(folder, config, special), generation_settings(folder / GENERATION)
    )


class HuggingFaceTokenizer:
    """Encodes text and decodes ids as tokenizer.json says.

    Attributes:
        eos_ids: The ids that end an answer.
        control_tokens: The ids of its special tokens, by spelling.

    Raises:
        ValueError: The file isn't a tokenizer's.
    """

    def __init__(self, path: Path, eos_token: str | None, ends: Iterable[int]) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises nothing narrower
            raise ValueError(f"{path} is no tokenizer ({error}); download it again") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # Where users type the name of a special token, it is text.
        self._plain = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        self._plain.encode_special_tokens = True
        added = self._tokenizer.get_added_tokens_decoder()
        control = {token.content: index for index, token in added.items() if token.special}
        self.control_tokens: Mapping[str, int] = MappingProxyType(control)
        found = {index for name, index in control.items() if name in END_NAMES}
        if eos_token is not None and eos_token in control:
            found.add(control[eos_token])
        self.eos_ids = frozenset({*ends, *found})
        self._ids = sorted(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def ids(self) -> list[int]:
        return self._ids

    def encode(self, text: str, *, add_bos: bool = False, special: bool = True) -> list[int]:
        """Return the ids of ``text``, in which the names of special tokens stand for them.

        Pass ``special=False`` for what users type or files hold. ``add_bos`` adds what the
        tokenizer puts around a text. A lone surrogate becomes U+FFFD.
        """
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        tokenizer = self._tokenizer if special else self._plain
        return list(tokenizer.encode(whole, add_special_tokens=add_bos).ids)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of ``ids``; bytes that aren't UTF-8 become U+FFFD."""
        text: str = self._tokenizer.decode([*ids], skip_special_tokens=skip_special)
        return text

    def stream(self, *, skip_special: bool = True) -> _Stream:
        """Return a decoder that is fed one id at a time."""
        return _Stream(self._tokenizer, skip_special)


class _Stream:
    """Decodes ids one by one, and gives text only where a character is complete."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special
        self._stream = DecodeStream(skip_special_tokens=skip_special)
        self._ids: list[int] = []
        self._given = ""

    def feed(self, index: int) -> str:
        self._ids.append(int(index))
        text: str = self._stream.step(self._tokenizer, int(index)) or ""
        self._given += text
        return text

    def finish(self) -> str:
        """What is left: U+FFFD where the ids end inside a character."""
        whole: str = self._tokenizer.decode(self._ids, skip_special_tokens=self._skip)
        return whole.removeprefix(self._given) if whole.startswith(self._given) else ""


def _end_ids(path: Path) -> set[int]:
    """``eos_token_id`` of a configuration: a number, several, or none."""
    value = read_object_if_there(path).get("eos_token_id")
    given = value if isinstance(value, list) else [] if value is None else [value]
    for index in given:
        if type(index) is not int or index < 0:
            raise ValueError(
                f"{path}: 'eos_token_id' is {repr(value)[:80]}, expected ids of tokens"
            )
    return set(given)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """A template's variables such as ``bos_token``."""
    found = {}
    for name in _SPECIAL_TOKENS:
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def _template(
    folder: Path, config: Mapping[str, Any], special: Mapping[str, str]
) -> ChatTemplate | None:
    own = folder / TEMPLATE
    if own.is_file():
        try:
            return ChatTemplate(own.read_text("utf-8"), special, str(own))
        except UnicodeDecodeError as error:
            raise ValueError(f"{own} is no UTF-8 text ({error}); download it again") from error
    template, source = config.get("chat_template"), str(folder / TOKENIZER_CONFIG)
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    if template is None:
        return None
    if not isinstance(template, str):
        raise ValueError(
            f"{source}: 'chat_template' is a {type(template).__name__}, expected a text or a list "
            "of named ones"
        )
    return ChatTemplate(template, special, source)


def generation_settings(path: Path) -> Settings:
    """What a generation_config.json says of sampling, if it is there."""
    fields = Fields(read_object_if_there(path), str(path), "generation")
    if not fields.flag("do_sample", False):
        penalty = fields.positive("repetition_penalty", 1.0)
        return Settings(repetition_penalty=penalty)
    return Settings(
        temperature=fields.number("temperature", 1.0),
        top_k=int(fields.number("top_k", 50)),  # what transformers takes where it isn't said
        top_p=fields.number("top_p", 1.0),
        min_p=fields.number("min_p", 0.0),
        repetition_penalty=fields.positive("repetition_penalty", 1.0),
    )
