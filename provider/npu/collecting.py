"""Sessions opened only to learn what their subgraphs would need on an NPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from onnx_iron.provider.graph import Graph
from onnx_iron.provider.specs import Shape

if TYPE_CHECKING:
    from onnx_iron.provider.npu.plan import Plan

Planning: TypeAlias = "Callable[[Graph, Sequence[Shape]], Plan]"

_plans: list[Plan] = []
_planning: Planning | None = None


@contextmanager
def collecting(planning: Planning) -> Iterator[list[Plan]]:
    """While the block runs, each subgraph that a session compiles is planned too.

    Yields:
        The plans, in the order in which the subgraphs are compiled.
    """
    global _plans, _planning
    _plans, _planning = [], planning
    try:
        yield _plans
    finally:
        _planning = None


def collect(graph: Graph, shapes: Sequence[Shape]) -> None:
    """Plan a subgraph, where somebody collects plans."""
    if _planning is not None:
        _plans.append(_planning(graph, shapes))
