"""Asks the native library whether it has a kernel for a step."""

from __future__ import annotations

import functools

from onnx_iron.dtypes import Spec
from onnx_iron.native import Kernel
from onnx_iron.provider.lowering import KernelCall, Lowering, Refused
from onnx_iron.provider.operator import Operator


@functools.lru_cache(maxsize=4096)
def refusal(op: Operator, inputs: tuple[Spec | None, ...], outputs: tuple[Spec | None, ...]) -> str:
    """Why there is no kernel for a node; empty where there is one."""
    try:
        with Kernel(op.name, inputs, outputs, op.attributes()):
            return ""
    except ValueError as error:
        return str(error)


def check_step(step: KernelCall, lowering: Lowering) -> None:
    """Refuse a step that has no kernel.

    Raises:
        Refused: what the kernel says.
    """
    unknown = [name for name in step.inputs if name is not None and name not in lowering.specs]
    if unknown:
        raise Refused(f"dtype or rank of '{unknown[0]}' is not known, or no kernel has it")
    inputs = tuple(None if name is None else lowering.specs[name] for name in step.inputs)
    outputs = tuple(lowering.specs[name] for name in step.outputs)
    reason = refusal(step.op, inputs, outputs)
    if reason:
        raise Refused(reason)
