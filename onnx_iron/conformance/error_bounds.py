"""How far the results of a graph may be from the oracle's, where each step keeps its tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_iron.conformance.expected import Call, Expected, OracleSteps, Results, expected_results
from onnx_iron.conformance.rounding import rounded, spacing
from onnx_iron.dtypes import FLOATS, Array
from onnx_iron.graph import Trace
from onnx_iron.operators import Op

# A step's error has one of so many random signs for each element; one run is one set of them.
RUNS = 6
# Function bodies lose digits in erf, tanh and sigmoid that our operators keep.
OF_BODIES = 2.0**-22


def bounded_results(trace: Trace, calls: Sequence[Call]) -> tuple[Results, ...]:
    """The oracle's results, each with the largest change of one of its elements when every step's
    result is moved by what its operator's tolerance allows.

    A graph whose steps are all exact has a bound of 0. The change is measured, on a few runs whose
    errors have random signs, for errors grow and cancel as the graph has it.
    """
    nearest = expected_results(trace, calls)
    moved = [expected_results(trace, calls, compute=_Moved(run)) for run in range(RUNS)]
    return tuple(
        {
            name: Expected(wanted.nearest, _change(wanted.nearest, [m[i][name] for m in moved]))
            for name, wanted in results.items()
        }
        for i, results in enumerate(nearest)
    )


def _change(nearest: Array, moved: Sequence[Expected]) -> Array:
    wide = nearest.astype(np.float64)
    most = max(_apart(wide, m.nearest.astype(np.float64)) for m in moved)
    return np.full(nearest.shape, most)


def _apart(one: Array, other: Array) -> float:
    """The largest distance; equal infinities and two NaN are none, an infinity and a number one
    without bound.
    """
    differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
    with np.errstate(all="ignore"):
        apart = np.abs(one[differs] - other[differs])
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0))


class _Moved:
    """Computes steps by their oracles, and moves each result by its tolerance."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._steps = OracleSteps(flushed=False)

    def __call__(self, op: Op, operands: Sequence[Any]) -> tuple[Array, ...]:
        results = self._steps(op, operands)
        if op.tolerance == Op.tolerance:
            return results
        carried = {output for _, output in op.updates}
        magnitudes = [*self._steps.magnitudes, *[0.0] * len(results)]
        return tuple(
            result if name in carried else self._moved(op, result, magnitude)
            for result, name, magnitude in zip(results, op.outputs, magnitudes, strict=False)
        )

    def _moved(self, op: Op, result: Array, magnitude: Any) -> Array:
        if result.dtype not in FLOATS:
            return result
        part = max(op.tolerance.of_magnitude, OF_BODIES)
        allowed = getattr(op.tolerance, result.dtype.name) * spacing(result) + part * magnitude
        signs = self._random.choice((-1.0, 1.0), result.shape)
        with np.errstate(all="ignore"):
            moved = rounded(result.astype(np.float64) + signs * allowed, result.dtype)
        return np.where(np.isfinite(result), moved, result)
