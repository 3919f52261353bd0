"""Tokens that stand in a text as they are spelled, and are looked for before it is cut further."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class SpecialTokens:
    """Finds tokens in a text: the first that begins, and of those the longest."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._ids = {token: index for token, index in tokens.items() if token}
        lengths: dict[str, set[int]] = {}
        for token in self._ids:
            lengths.setdefault(token[0], set()).add(len(token))
        self._lengths = {first: sorted(all_, reverse=True) for first, all_ in lengths.items()}
        # Without tokens, a pattern that matches nowhere.
        firsts = "".join(map(re.escape, sorted(lengths)))
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def split(self, text: str) -> Iterator[int | str]:
        """Yield, in order, the ids of the tokens and the texts between them, none of them empty."""
        done, at = 0, 0
        while match := self._first.search(text, at):
            at = match.start()
            for length in self._lengths[match[0]]:
                index = self._ids.get(text[at : at + length])
                if index is not None:
                    if done < at:
                        yield text[done:at]
                    yield index
                    done = at = at + length
                    break
            else:
                at += 1
        if done < len(text):
            yield text[done:]
