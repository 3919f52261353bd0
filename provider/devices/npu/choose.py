"""Which steps the NPU takes: the design of each, or why there is none."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import FLOATS, Array, Spec
from onnx_iron.kernels.designs import Design, Refusal, Target, design_for
from onnx_iron.operators import Op
from onnx_iron.provider.lowering import KernelCall, Lowering
from onnx_iron.provider.operator import Operator


@dataclass(frozen=True)
class Choice:
    """What is done with a step.

    Attributes:
        design: what runs it on the NPU; None where the host does.
        reason: why the host does.
        natural: the host does it by nature; it isn't a refusal.
    """

    design: Design | None
    reason: str = ""
    natural: bool = False


def choose(step: KernelCall, lowering: Lowering, target: Target) -> Choice:
    """The design for a step, or why there is none."""
    inputs = tuple(None if name is None else lowering.specs[name] for name in step.inputs)
    outputs = tuple(lowering.specs[name] for name in step.outputs)
    if all(spec.dtype not in FLOATS for spec in outputs):
        return Choice(None, "it computes indices", natural=True)
    constants = {
        index: lowering.literals[lowering.resolve(name)[0]]
        for index, name in enumerate(step.inputs)
        if name is not None and lowering.resolve(name)[0] in lowering.literals
    }
    found = _design(step.op, inputs, outputs, _frozen(constants), target)
    if isinstance(found, Design):
        return Choice(found)
    return Choice(None, found.reason, natural=step.op.moves)


# Numbers that are known when a subgraph is compiled, by the input's position, as bytes.
_Constants = tuple[tuple[int, bytes, str], ...]


def _frozen(constants: Mapping[int, Array]) -> _Constants:
    return tuple(
        (index, array.tobytes(), array.dtype.name)
        for index, array in constants.items()
        if array.size == 1
    )


@functools.lru_cache(maxsize=4096)
def _design(
    op: Operator,
    inputs: tuple[Spec | None, ...],
    outputs: tuple[Spec, ...],
    constants: _Constants,
    target: Target,
) -> Design | Refusal:
    if not isinstance(op, Op):
        return Refusal(f"{op.name} has no design")
    try:
        if op.infer(inputs) != outputs:
            return Refusal(f"{op.name} gives other shapes here")
        known = {
            op.inputs[index].name: np.frombuffer(raw, _dtype(name))
            for index, raw, name in constants
        }
        return design_for(op, inputs, target, known)
    except (TypeError, ValueError) as error:
        return Refusal(str(error))


def _dtype(name: str) -> Any:
    return next(
        spec for spec in (*FLOATS, np.dtype(np.int32), np.dtype(np.int64)) if spec.name == name
    )
