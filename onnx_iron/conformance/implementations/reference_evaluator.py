"""onnx's own reference evaluator on the function bodies."""

from __future__ import annotations

import numpy as np
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.base import Results
from onnx_iron.conformance.implementations.exported import exported, read_states
from onnx_iron.conformance.implementations.known import ACTIVATIONS, MASKED


class OnnxReference:
    """ReferenceEvaluator, the functions inlined first: it takes no overloads by itself."""

    name = "function bodies, onnx ReferenceEvaluator"
    differences = (MASKED, *ACTIVATIONS)

    def run(self, case: Case) -> Results:
        model = exported(case)
        evaluator = ReferenceEvaluator(inline_local_functions(model.model))
        kept = model.empty_states()
        results = []
        for call in case.calls:
            with np.errstate(all="ignore"):
                made = evaluator.run(None, {**model.feeds(call), **kept})
            outputs = {
                name: np.asarray(array).astype(dtype)
                for (name, (_, dtype)), array in zip(model.outputs.items(), made, strict=True)
            }
            for past, present in model.states.items():
                if present is not None:
                    kept[past] = outputs[present]
            results.append({**read_states(kept), **outputs})
        return results
