"""What a case must give: every step in float64 by its operator's oracle, rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from onnx_iron.conformance.rounding import rounded
from onnx_iron.dtypes import FLOATS, INT32, Array, Spec
from onnx_iron.graph import Trace
from onnx_iron.graph.reference import run_reference
from onnx_iron.operators import Op

# Of float32 and of bfloat16.
LEAST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class Expected:
    """A result: the nearest numbers of its dtype, and the magnitude of what was added up for each
    of them, which the error of a sum grows with.
    """

    nearest: Array
    magnitude: Array


Results: TypeAlias = Mapping[str, Expected]


class Call(Protocol):
    """What a call gives to a graph, by name."""

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Its arrays."""

    @property
    def values(self) -> Mapping[str, int]:
        """Its per-call values."""


def expected_results(
    trace: Trace, calls: Sequence[Call], flushed: bool = False
) -> tuple[Results, ...]:
    """The results of calls of a graph, each with the states that the one before left.

    Args:
        flushed: numbers below the least normal one are zeros, as operands and as results of a step.
    """
    results, states = [], dict[str, Array]()
    for call in calls:
        steps = _Steps(flushed)
        values = {name: call.values[name] for name in trace.value_names}
        inputs = {name: call.inputs[name] for name in trace.inputs}
        outputs = run_reference(trace, inputs, values, states, steps)
        # Of one step its operator says the magnitudes; of several they are the largest number's.
        last = steps.magnitudes if len(trace.steps) == 1 else ()
        made = {}
        for number, (name, array) in enumerate(outputs.items()):
            magnitude = last[number] if number < len(last) else _largest(array)
            made[name] = Expected(array, np.broadcast_to(magnitude, array.shape))
        for name, state in trace.states.items():
            if not state.scratch:
                kept = states[name].copy()
                made[f"present.{name}"] = Expected(kept, np.full(kept.shape, _largest(kept)))
        results.append(made)
    return tuple(results)


class _Steps:
    """Computes steps by their oracles, and keeps the magnitudes of the last one's outputs."""

    def __init__(self, flushed: bool) -> None:
        self._kept = flush if flushed else _unchanged
        self.magnitudes: tuple[Array, ...] = ()

    def __call__(self, op: Op, operands: Sequence[Any]) -> tuple[Array, ...]:
        specs = [
            None
            if x is None
            else Spec(x.shape, x.dtype)
            if isinstance(x, np.ndarray)
            else Spec((), INT32)
            for x in operands
        ]
        made = op.infer(specs)
        # What only moves keeps all bits, and so does the state that an operator carries on.
        kept = _unchanged if op.moves else self._kept
        carried = {output for _, output in op.updates}
        wide = [_wide(x, kept) for x in operands]
        with np.errstate(all="ignore"):
            results = [*_tuple(op.oracle(*wide))]
            if carried and kept is flush:
                moved = _tuple(op.oracle(*(_wide(x, _unchanged) for x in operands)))
                for place in (op.outputs.index(name) for name in carried):
                    results[place] = moved[place]
            magnitudes = tuple(np.abs(x) for x in _tuple(op.magnitude(*wide)))
        # Where a number is not finite there is nothing to be excused.
        self.magnitudes = tuple(np.where(np.isfinite(x), x, 0) for x in magnitudes)
        return tuple(
            rounded(np.asarray(x) if name in carried else kept(np.asarray(x)), spec.dtype)
            for x, name, spec in zip(results, op.outputs, made, strict=True)
        )


def _wide(operand: Any, kept: Callable[[Array], Array]) -> Any:
    floats = isinstance(operand, np.ndarray) and operand.dtype in FLOATS
    return kept(operand.astype(np.float64)) if floats else operand


def _unchanged(array: Array) -> Array:
    return array


def flush(array: Array) -> Array:
    """Zeros, of the numbers' signs, where they are below the least normal one."""
    return np.where(np.abs(array) < LEAST_NORMAL, 0 * array, array)


def _tuple(results: Any) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)


def _largest(array: Array) -> float:
    wide = np.abs(array.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0))
