"""A case: a graph, and calls of it with the results that they must have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onnx_iron.conformance.expected import Results, expected_results
from onnx_iron.dtypes import Array, DType
from onnx_iron.graph import Trace


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the one expected.

    An element passes that is at most ``ulps`` numbers of its dtype away, or at most
    ``of_magnitude`` times the magnitude of the terms that it is the sum of.
    """

    ulps: int
    reason: str
    of_magnitude: float = 0.0


@dataclass(frozen=True)
class Call:
    """One call: what its numbers are like, the inputs and the per-call values by name."""

    kind: str
    inputs: Mapping[str, Array]
    values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """A graph and calls of it.

    Attributes:
        name: unique among all cases; what selects it on the command line.
        subject: the operator or the graph that it is about, a row of the report's matrix.
        dtype: of its tensors.
        make: traces the graph.
        calls: in order.
        keeps_states: the calls go on with one another's states; else each begins with zeros.
        tolerance: for every output and state, by the trace's graph where it depends on it.
    """

    name: str
    subject: str
    dtype: DType
    make: Callable[[], Trace]
    calls: tuple[Call, ...]
    tolerance: Tolerance
    keeps_states: bool = False

    @functools.cached_property
    def trace(self) -> Trace:
        """The graph's steps; traced when first asked for."""
        return self.make()

    @functools.cached_property
    def expected(self) -> tuple[Results, ...]:
        """For each call the outputs, and the states as ``present.<name>``."""
        return expected_results(self)
