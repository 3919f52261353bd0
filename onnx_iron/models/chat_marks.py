"""Which control tokens in a rendered chat are the template's own, and which the messages spell.

A chat is rendered three times: as it is; with a mark in place of each control token in the
template's constants; and with a mask over each character of the messages. Marks and masks are
characters of Unicode's private planes that occur nowhere in the template or the messages, so what
is marked is the template's, and what is masked is not. A rendering counts only where, its marks
and masks undone, it is the first one: the template took the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from onnx_iron.models.special_tokens import SpecialTokens

_PRIVATE = (*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))
_ROLE = re.compile(r"\w+(-\w+)*")


class Marks:
    """The marks and masks of one chat.

    Attributes:
        tokens: The control tokens with their ids, but for those that are all white space.
        of_tokens: The mark of each control token.
        masked: The messages with all but white space masked; a ``role`` of one word stays.
    """

    def __init__(
        self, template: str, messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, int]
    ) -> None:
        # The longest first: a token that begins another one must not be marked in its place.
        self.tokens = {t: tokens[t] for t in sorted(tokens, key=len, reverse=True) if t.strip()}
        self.contents = [text for message in messages for text in _texts(message, True)]
        used = set(template).union(*self.contents, *self.tokens)
        free = (chr(point) for point in _PRIVATE if chr(point) not in used)
        self.of_tokens = dict(zip(self.tokens, free, strict=False))
        plain = sorted({c for text in self.contents for c in text if not c.isspace()})
        # Where the private planes have too few characters, what is left over stays unmasked,
        # and nothing that holds it can be told to be the template's.
        self._mask = {ord(character): mask for character, mask in zip(plain, free, strict=False)}
        self.complete = len(self._mask) == len(plain) and len(self.of_tokens) == len(self.tokens)
        self.masked = [_map(message, self._mask, True) for message in messages]
        self._undo = {ord(mark): token for token, mark in self.of_tokens.items()}
        self._undo |= {ord(mask): chr(point) for point, mask in self._mask.items()}

    def undone(self, text: str) -> str:
        """A rendering without its marks and masks."""
        return text.translate(self._undo)

    @cached_property
    def in_contents(self) -> Counter[int]:
        """How often the messages spell each control token."""
        found = (piece for text in self.contents for piece in self.spelled.split(text))
        return Counter(piece for piece in found if isinstance(piece, int))

    @cached_property
    def spelled(self) -> SpecialTokens:
        """The control tokens by their spelling."""
        return SpecialTokens(self.tokens)

    @cached_property
    def marked(self) -> SpecialTokens:
        """The control tokens by their marks."""
        return SpecialTokens({mark: self.tokens[token] for token, mark in self.of_tokens.items()})


def pieces(
    plain: str, marked: str | None, masked: str | None, marks: Marks
) -> list[int | str] | None:
    """Split a chat into the ids of the template's control tokens, and the texts between.

    None where that can't be told.
    """
    if not marks.complete:
        return None
    same = marked is not None and marks.undone(marked) == plain
    own = list(marks.marked.split(marked)) if marked is not None and same else None
    left = Counter(p for p in marks.spelled.split(marked) if isinstance(p, int)) if marked else None
    if own is not None and not left:
        return own
    # Messages spell control tokens, or the template makes them of parts ('<|' + role + '|>').
    if masked is not None and marks.undone(masked) == plain:
        split = marks.spelled.split(masked)
        return [piece if isinstance(piece, int) else marks.undone(piece) for piece in split]
    # The template looks into the contents. Its marks are right, and what else spells a token is
    # text, if the messages account for it.
    if own is not None and left is not None and left <= marks.in_contents:
        return own
    return None


def _texts(value: Any, is_message: bool = False) -> Iterator[str]:
    """All that is written in a message, but for its role and the names of its entries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            if not (is_message and _is_role(key, entry)):
                yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)


def _map(value: Any, mask: Mapping[int, str], is_message: bool = False) -> Any:
    if isinstance(value, str):
        return value.translate(mask)
    if isinstance(value, dict):
        return {
            key: entry if is_message and _is_role(key, entry) else _map(entry, mask)
            for key, entry in value.items()
        }
    return [_map(entry, mask) for entry in value] if isinstance(value, list) else value


def _is_role(key: str, value: Any) -> bool:
    return key == "role" and isinstance(value, str) and _ROLE.fullmatch(value) is not None
