"""The trace that is being recorded, for states and weights, which belong to no trace."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_iron.graph.trace import Trace

active: ContextVar[Trace | None] = ContextVar("onnx_iron_trace", default=None)


def current_trace(what: str) -> Trace:
    """The trace being recorded.

    Raises:
        RuntimeError: no body is being traced.
    """
    trace = active.get()
    if trace is None:
        raise RuntimeError(
            f"{what} is computed with inside of a graph's body only, while it is traced"
        )
    return trace
