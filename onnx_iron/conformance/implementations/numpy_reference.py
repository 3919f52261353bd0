"""The operators' own references, in numpy."""

from __future__ import annotations

import numpy as np

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.base import Results
from onnx_iron.dtypes import Array
from onnx_iron.graph.reference import run_reference


class NumpyReference:
    """``Graph.reference``: float32 inside a step, one rounding."""

    name = "numpy reference"

    def run(self, case: Case) -> Results:
        results, states = [], dict[str, Array]()
        for call in case.calls:
            inputs = {name: call.inputs[name] for name in case.trace.inputs}
            values = {name: call.values[name] for name in case.trace.value_names}
            made = run_reference(case.trace, inputs, values, states)
            kept = {n: np.array(states[n]) for n, s in case.trace.states.items() if not s.scratch}
            results.append(made | {f"present.{name}": array for name, array in kept.items()})
        return results
