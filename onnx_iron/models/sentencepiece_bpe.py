"""SentencePiece's byte pair encoding: scores order the merges, bytes stand in for characters."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SentencePieceBPE:
    """Encodes text that holds no special token.

    Attributes:
        scores: The score of every token that merges may make; the highest goes first, and of
            equal ones the leftmost.
        ids: The ids of these tokens.
        unused: Tokens that merges pass through, and that are taken apart again at the end.
        bytes: The id of each byte's token; of less than 256, none is used.
        unknown: The id of what has neither a token nor bytes, once for characters in a row; None
            leaves them out.
        adds_space: Whether a space is put before the text.
        collapses_spaces: Whether spaces at the text's ends go, and those in a row are one; a
            U+2581 of the text's own counts at its end only.
    """

    scores: Mapping[str, float]
    ids: Mapping[str, int]
    unused: frozenset[str]
    bytes: Mapping[int, int]
    unknown: int | None
    adds_space: bool
    collapses_spaces: bool

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; none for an empty one."""
        if self.collapses_spaces:
            text = re.sub(" +", " ", text.lstrip(" "))
        if not text:
            return []
        spelled = (f" {text}" if self.adds_space else text).replace(" ", "▁")
        if self.collapses_spaces:
            spelled = spelled.rstrip("▁")
        ids: list[int] = []
        previous_unknown = False
        for piece in self._merged(spelled):
            index = self.ids.get(piece)
            is_unknown = index is None and len(self.bytes) < 256
            if index is not None:
                ids.append(index)
            elif not is_unknown:
                ids += [self.bytes[value] for value in piece.encode()]
            elif self.unknown is not None and not previous_unknown:
                ids.append(self.unknown)
            previous_unknown = is_unknown
        return ids

    def _merged(self, text: str) -> list[str]:
        """The pieces after all merges; a piece is kept where its first character is."""
        pieces = list(text)
        before, after = list(range(-1, len(text) - 1)), list(range(1, len(text) + 1))
        queue: list[tuple[float, int, str, int]] = []
        made_of: dict[str, tuple[str, str]] = {}

        def propose(left: int, right: int) -> None:
            if left < 0 or right >= len(pieces):
                return
            merged = pieces[left] + pieces[right]
            score = self.scores.get(merged)
            if score is not None:
                heapq.heappush(queue, (-score, left, merged, right))
                if merged in self.unused:
                    made_of.setdefault(merged, (pieces[left], pieces[right]))

        for left in range(len(pieces) - 1):
            propose(left, left + 1)
        while queue:
            _, left, merged, right = heapq.heappop(queue)
            # Either may have merged with another since; an empty one merged to the left.
            if after[left] != right or pieces[left] + pieces[right] != merged or not pieces[left]:
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            if after[left] < len(pieces):
                before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        result = [piece for piece in reversed(pieces) if piece]
        if not made_of:
            return result[::-1]
        parts: list[str] = []
        while result:
            piece = result.pop()
            if piece in made_of:
                result += reversed(made_of[piece])
            else:
                parts.append(piece)
        return parts
