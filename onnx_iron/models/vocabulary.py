"""The vocabulary in a GGUF file's metadata: tokens, their types, merges and scores, all checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Keys that a tokenizer is made of.
_READ = {"model", "pre", "tokens", "token_type", "merges", "scores", "add_bos_token"}
_READ |= {"add_space_prefix", "remove_extra_whitespaces"}
_READ |= {f"{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding")}
# Keys that encoding has no use for.
_IDLE = {f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")}
_IDLE |= {f"{name}_token_id" for name in ("seperator", "separator", "cls", "mask")}
_IDLE |= {f"{name}_token_id" for name in ("prefix", "suffix", "middle")}
_IDLE |= {"token_type_count"}
# Keys that would change the ids, each with the value that changes nothing.
_NEUTRAL: dict[str, Any] = {
    "add_eos_token": False,
    "add_sep_token": False,
    "escape_whitespaces": True,
    "normalizer.lowercase": False,
    "normalizer.strip_accents": False,
    "precompiled_charsmap": [],
    "suppress_tokens": [],
}
_PREFIX = "tokenizer.ggml."

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Vocabulary:
    """The ``tokenizer.ggml`` keys of a GGUF file, checked."""

    def __init__(self, metadata: Mapping[str, Any], source: str) -> None:
        self._metadata = metadata
        self._source = source
        for key in metadata:
            name = key.removeprefix(_PREFIX)
            if name == key or name in _READ | _IDLE:
                continue
            if name not in _NEUTRAL:
                raise self.error(
                    f"metadata key {key!r} is not known, expected none that may change the ids; "
                    "use another model"
                )
            self.expect(name, _NEUTRAL[name])
        self.model: str = self._get("model", str)
        self.tokens: list[str] = self._list("tokens", str)
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            raise self.error(
                f"tokenizer.ggml.tokens has {len(self.tokens)} entries, and "
                f"{len(self.tokens) - len(self.ids)} repeat another, expected each once"
            )
        self.types: list[int] = self.list_for_tokens("token_type", int, [NORMAL] * len(self.tokens))
        self._by_type: dict[int, set[int]] = {}
        for index, kind in enumerate(self.types):
            if not NORMAL <= kind <= BYTE:
                raise self.error(
                    f"tokenizer.ggml.token_type[{index}] is {kind}, expected {NORMAL}..{BYTE}"
                )
            self._by_type.setdefault(kind, set()).add(index)

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self._source}: {text}")

    def expect(self, name: str, neutral: Any) -> None:
        """Refuse a key with another value than the one that changes nothing."""
        value = self._metadata.get(f"{_PREFIX}{name}", neutral)
        if value != neutral:
            raise self.error(
                f"{_PREFIX}{name} is {repr(value)[:80]}, expected {neutral!r}; no other is "
                "implemented"
            )

    def of_type(self, kind: int) -> frozenset[int]:
        """The ids of the tokens of a type."""
        return frozenset(self._by_type.get(kind, ()))

    def token_id(self, name: str) -> int | None:
        """The id that a key gives, or None without the key."""
        value = self._metadata.get(f"tokenizer.ggml.{name}")
        if value is not None and (type(value) is not int or not 0 <= value < len(self.tokens)):
            raise self.error(
                f"tokenizer.ggml.{name} is {value!r}, expected 0..{len(self.tokens) - 1}"
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        value: bool = self._get(name, bool, default)
        return value

    def byte(self, index: int) -> bytes:
        """The byte that a token of the type BYTE, spelled ``<0x0A>``, stands for."""
        match = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", self.tokens[index])
        if not match:
            raise self.error(
                f"token {index} is {self.tokens[index]!r} and has the type of a byte, expected "
                "'<0x00>'..'<0xFF>'"
            )
        return bytes.fromhex(match[1])

    @property
    def pre(self) -> str:
        """The name of the pre-tokenizer."""
        name: str = self._get("pre", str, "default")
        return name

    def merges(self) -> list[tuple[str, str]]:
        """The pairs that are merged, first the one that goes first."""
        pairs = []
        for index, merge in enumerate(self._list("merges", str)):
            cut = merge.find(" ", 1)
            left, right = merge[:cut], merge[cut + 1 :]
            if cut < 0 or any(token not in self.ids for token in (left, right, left + right)):
                raise self.error(
                    f"tokenizer.ggml.merges[{index}] is {merge!r}, expected two tokens that "
                    "together are a token, with a space between"
                )
            pairs.append((left, right))
        return pairs

    def scores(self) -> list[float]:
        scores: list[float] = self.list_for_tokens("scores", float, None)
        for index, score in enumerate(scores):
            if math.isnan(score):
                raise self.error(f"tokenizer.ggml.scores[{index}] is nan, expected a number")
        return scores

    def list_for_tokens(self, name: str, kind: type, default: list[Any] | None) -> list[Any]:
        """A list with one entry for each token."""
        values = self._list(name, kind, default)
        if len(values) != len(self.tokens):
            raise self.error(
                f"tokenizer.ggml.{name} has {len(values)} entries, expected {len(self.tokens)}, "
                "one for each of tokenizer.ggml.tokens"
            )
        return values

    def _list(self, name: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        values: list[Any] = self._get(name, list, default)
        if values and type(values[0]) is not kind:
            raise self.error(
                f"tokenizer.ggml.{name} holds {type(values[0]).__name__}, expected {kind.__name__}"
            )
        return values

    def _get(self, name: str, kind: type, default: Any = None) -> Any:
        value = self._metadata.get(f"tokenizer.ggml.{name}", default)
        if value is None:
            raise self.error(
                f"metadata key 'tokenizer.ggml.{name}' is missing, expected the model's own "
                "tokenizer in the file; convert the model again"
            )
        if type(value) is not kind:
            raise self.error(
                f"tokenizer.ggml.{name} is of type {type(value).__name__}, expected {kind.__name__}"
            )
        return value
