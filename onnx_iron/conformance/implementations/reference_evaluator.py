"""onnx's own reference evaluator on the function bodies."""

from __future__ import annotations

import numpy as np
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.base import Results
from onnx_iron.conformance.implementations.exported import exported


class OnnxReference:
    """ReferenceEvaluator, the functions inlined first: it takes no overloads by itself."""

    name = "function bodies, onnx ReferenceEvaluator"

    def run(self, case: Case) -> Results:
        model = exported(case)
        inlined = inline_local_functions(model.model)
        evaluator = ReferenceEvaluator(inlined)
        names = [output.name for output in inlined.graph.output]
        kept = {past: np.zeros(*model.inputs[past]) for past in model.states}
        results = []
        for call in case.calls:
            if not case.keeps_states:
                kept = {past: np.zeros(*model.inputs[past]) for past in model.states}
            with np.errstate(all="ignore"):
                made = evaluator.run(None, {**model.feeds(call), **kept})
            outputs = {
                name: np.asarray(array).astype(model.outputs[name][1])
                for name, array in zip(names, made, strict=True)
            }
            for past, present in model.states.items():
                if present is not None:
                    kept[past] = outputs[present]
            read = {f"present.{past.removeprefix('past.')}": array for past, array in kept.items()}
            results.append({**read, **outputs})
        return results
