"""Steps that the host runs beside the NPU, by the CPU kernels."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_iron.native import Kernel, NativeError
from onnx_iron.provider.lowering import KernelCall, Lowering


class HostStepError(ValueError):
    """A CPU kernel objects to a call; the message is for the user."""


class HostStep:
    """A step's CPU kernel."""

    def __init__(self, step: KernelCall, lowering: Lowering) -> None:
        self._step = step
        inputs = [None if name is None else lowering.specs[name] for name in step.inputs]
        outputs = [lowering.specs[name] for name in step.outputs]
        try:
            self._kernel = Kernel(step.op.name, inputs, outputs, step.op.attributes())
        except NativeError as error:
            raise HostStepError(f"{step.op.name} '{step.name}': {error}") from None

    def run(self, inputs: Sequence[int | None], outputs: Sequence[int]) -> None:
        """Run the kernel on addresses.

        Raises:
            HostStepError: a per-call value that is out of its bounds.
        """
        try:
            self._kernel.run(inputs, outputs)
        except NativeError as error:
            # The kernel's words begin with the operator; the node's name goes behind it.
            text = str(error).removeprefix(self._step.op.name)
            raise HostStepError(f"{self._step.op.name} '{self._step.name}'{text}") from None

    def close(self) -> None:
        """Give the kernel back."""
        self._kernel.close()
