"""A case: a graph, and calls of it with the results that they must have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from onnx_iron.conformance.expected import Results, expected_results
from onnx_iron.dtypes import Array, DType
from onnx_iron.graph import Trace
from onnx_iron.operators.declaration import Tolerance


@dataclass(frozen=True)
class Call:
    """One call: what its numbers are like, the inputs and the per-call values by name."""

    kind: str
    inputs: Mapping[str, Array]
    values: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join([f"{self.kind} numbers", *(f"{k} {v}" for k, v in self.values.items())])


@dataclass(frozen=True, eq=False)
class Case:
    """A graph and calls of it, which go on with one another's states; the first has zeros.

    Attributes:
        name: unique among all cases; what selects it on the command line.
        subject: the operator or the graph that it is about, a row of the report's matrix.
        dtype: of its tensors.
        make: traces the graph; a module's function or a partial of one, so that it can be sent to
            another process.
        calls: in order.
        tolerance: for every output and state.
    """

    name: str
    subject: str
    dtype: DType
    make: Callable[[], Trace]
    calls: tuple[Call, ...]
    tolerance: Tolerance

    def __getstate__(self) -> dict[str, object]:
        """Without what is made when it is first asked for."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @functools.cached_property
    def trace(self) -> Trace:
        """The graph's steps; traced when first asked for."""
        return self.make()

    @functools.cached_property
    def expected(self) -> tuple[Results, ...]:
        """For each call the outputs, and the states as ``present.<name>``."""
        return expected_results(self.trace, self.calls)

    @functools.cached_property
    def expected_flushed(self) -> tuple[Results, ...]:
        """The same where numbers below the least normal one are zeros."""
        return expected_results(self.trace, self.calls, flushed=True)
