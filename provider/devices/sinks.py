"""Who is given the subgraphs that a session compiles: named in the session's own options."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from onnx_iron.provider.subgraph import Subgraph

_sinks: dict[str, list[Subgraph]] = {}
_numbers = itertools.count(1)


@contextmanager
def sink() -> Iterator[tuple[str, list[Subgraph]]]:
    """While the block runs, sessions opened with the option ``sink`` give their subgraphs here.

    Yields:
        The option's value, and the subgraphs in the order in which they are compiled.
    """
    name, given = str(next(_numbers)), []  # type: tuple[str, list[Subgraph]]
    _sinks[name] = given
    try:
        yield name, given
    finally:
        del _sinks[name]


def give(name: str, subgraph: Subgraph) -> None:
    """A session compiled a subgraph; without a taker of that name, nothing is done."""
    if name in _sinks:
        _sinks[name].append(subgraph)
