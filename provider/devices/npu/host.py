"""Steps that the host does between the NPU's: single CPU kernels on memory that both see."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from onnx_iron.provider.kernel_check import (
    REASON_BYTES,
    attribute_array,
    encode,
    freeze,
    operand_array,
)
from onnx_iron.provider.library import library
from onnx_iron.provider.lowering import Lowering, Step


class HostStepError(ValueError):
    """A CPU kernel objects to a call; the message is for the user."""


class HostStep:
    """A step's CPU kernel."""

    def __init__(self, step: Step, lowering: Lowering) -> None:
        self._step = step
        inputs = [None if name is None else lowering.specs[name] for name in step.inputs]
        outputs = [lowering.specs[name] for name in step.outputs]
        given, made = operand_array(inputs), operand_array(outputs)
        named = attribute_array(freeze(step.attributes))
        reason = ctypes.create_string_buffer(REASON_BYTES)
        self._kernel = ctypes.c_void_p()
        if library().onnx_iron_kernel_create(
            *(encode(step.op), given, len(given), made, len(made), named, len(named)),
            *(ctypes.byref(self._kernel), reason, REASON_BYTES),
        ):
            raise HostStepError(f"{step.op} '{step.name}': {reason.value.decode()}")

    def run(self, inputs: Sequence[int | None], outputs: Sequence[int]) -> None:
        """Run the kernel on addresses.

        Raises:
            HostStepError: a per-call value that is out of its bounds.
        """
        reason = ctypes.create_string_buffer(REASON_BYTES)
        failed = library().onnx_iron_kernel_run(
            self._kernel,
            (ctypes.c_void_p * len(inputs))(*inputs),
            (ctypes.c_void_p * len(outputs))(*outputs),
            1,
            reason,
            REASON_BYTES,
        )
        if failed:
            # The kernel's words begin with the operator; the node's name goes behind it.
            text = reason.value.decode("utf-8", "replace").removeprefix(self._step.op)
            raise HostStepError(f"{self._step.op} '{self._step.name}'{text}")

    def close(self) -> None:
        """Give the kernel back."""
        library().onnx_iron_kernel_destroy(self._kernel)
        self._kernel = ctypes.c_void_p()
