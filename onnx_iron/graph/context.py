"""The trace that is being recorded, for states and weights, which belong to no trace."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol


class Recorder(Protocol):
    """What tensors and operators ask of a trace. It gives back handles, which are declared later
    than this.
    """

    # The largest number that a per-call value may be, by its name, where that is declared.
    most: Mapping[str, int]

    def lift(self, operand: Any, like: Any = None) -> Any:
        """The handle of an operand."""

    def call(self, op: str, *operands: Any, **attributes: Any) -> Any:
        """Record a step of the operator of that name."""

    def record(self, op: Any, operands: Any, tunables: Any) -> Any:
        """Record a step whose operands are lifted and checked."""

    def write(self, source: Any, destination: Any) -> None:
        """Record a write into a state or a part of one."""


active: ContextVar[Recorder | None] = ContextVar("onnx_iron_trace", default=None)


def current_trace(what: str) -> Recorder:
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
