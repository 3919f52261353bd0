"""The NPU's designs, run on the host through the kernels compiled for it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnx_iron.conformance.case import Call, Case
from onnx_iron.conformance.expected import Expected, flush
from onnx_iron.conformance.implementations.base import Declined, Difference, Results
from onnx_iron.conformance.implementations.known import MASKED
from onnx_iron.conformance.rounding import rounded
from onnx_iron.dtypes import BFLOAT16, INT32, Spec
from onnx_iron.graph import Handle, Step
from onnx_iron.kernels.designs import Design, Refusal, Target, design_for
from onnx_iron.kernels.designs.interpreter import evaluate
from onnx_iron.operators.declaration import Tolerance
from onnx_iron.operators.layer_norm import LayerNorm


@functools.cache
def _layer_norm_of_flushed_parts(case: Case) -> tuple[Mapping[str, Expected], ...]:
    """LayerNorm in float64, every part of it that is below the least normal number a zero."""
    step = case.trace.steps[0]
    assert isinstance(step.op, LayerNorm)
    results = []
    with np.errstate(all="ignore"):  # infinities among the other calls' numbers
        for call in case.calls:
            results.append(_flushed_layer_norm(case, step.op, call))
    return tuple(results)


def _flushed_layer_norm(case: Case, op: LayerNorm, call: Call) -> Mapping[str, Expected]:
    given = {n: flush(np.asarray(a, np.float64)) for n, a in call.inputs.items()}
    mean = flush(given["x"].mean(-1, keepdims=True))
    apart = flush(given["x"] - mean)
    variance = flush((apart * apart).mean(-1, keepdims=True))
    y = flush(apart / np.sqrt(variance + op.epsilon))
    y = flush(y * given.get("weight", 1))
    return {"y": Expected(rounded(y, case.dtype), np.zeros(y.shape))}


@dataclass(frozen=True)
class DesignImplementation:
    """An operator's design for a device, tile by tile as its columns would run it."""

    device: Target
    differences: ClassVar = (
        MASKED,
        Difference(
            "a float32 product is one of three bfloat16 parts each; an infinity has none, and its "
            "products are NaN",
            subject="LayerNorm",
            kinds=("non-finite",),
        ),
        Difference(
            "subnormal numbers are zeros on the NPU's vector units; so are the mean and x - mean",
            subject="LayerNorm",
            kinds=("subnormal",),
            tolerance=Tolerance(0, 1, "a rounding to the other side of a boundary"),
            expected=_layer_norm_of_flushed_parts,
        ),
        Difference(
            "subnormal numbers are zeros on the NPU's vector units",
            kinds=("subnormal",),
            flushes=True,
        ),
    )

    @property
    def name(self) -> str:
        """The report's column."""
        return f"designs on the host, {self.device.value}"

    def run(self, case: Case) -> Results:
        if case.dtype != BFLOAT16:
            raise Declined("the NPU's kernels take bfloat16")
        if len(case.trace.steps) != 1 or case.trace.states:
            raise Declined("a design runs one operator")
        step = case.trace.steps[0]
        design = self._design(step)
        outputs = {handle.name: name for name, handle in case.trace.outputs.items()}
        names = dict(zip(step.op.outputs, (outputs[h.name] for h in step.outputs), strict=True))
        results = []
        for call in case.calls:
            given = {
                declared.name: np.array(call.values[declared.name], INT32)
                if declared.name in call.values
                else call.inputs[declared.name]
                for declared in step.op.inputs
                if declared.name in {**call.inputs, **call.values}
            }
            # The design reads the integers of a tensor one by one.
            words = {
                f"{name}[{place}]": int(number)
                for name, array in given.items()
                if array.dtype == INT32
                for place, number in enumerate(array.reshape(-1))
            }
            updated = {made: given[read] for read, made in step.op.updates if made not in given}
            made = evaluate(design, {**updated, **given}, {**call.values, **words})
            results.append({names[name]: array for name, array in made.items() if name in names})
        return results

    def _design(self, step: Step) -> Design:
        specs = [
            Spec(operand.shape, operand.dtype)
            if isinstance(operand, Handle)
            else None
            if operand is None
            else Spec((), INT32)
            for operand in step.inputs
        ]
        found = design_for(step.op, specs, self.device)
        if isinstance(found, Refusal):
            raise Declined(found.reason)
        return found


def designs() -> tuple[DesignImplementation, ...]:
    """One for each generation."""
    return tuple(DesignImplementation(device) for device in Target)
