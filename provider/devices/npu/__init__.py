"""The NPU as a device: artifacts, buffers and submissions through XRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_iron.provider.devices.device import Fallbacks, Places
from onnx_iron.provider.states import Memory
from onnx_iron.provider.subgraph import Subgraph

if TYPE_CHECKING:
    from onnx_iron.provider.options import Options

# Only a machine with an NPU needs what the methods import.


class Npu:
    """Runs what has a design; the host does the rest, or what fails, where the options allow it."""

    name = "npu"
    takes_symbols = False

    def unavailable(self) -> str:
        """Why XRT opens none."""
        from onnx_iron.provider.devices.npu.xrt import unavailable

        return unavailable()

    def compile(self, request: int, subgraph: Subgraph, provider: int, options: Options) -> Places:
        """Hand over the CPU's program, which a call falls back on, and a seat of the NPU's."""
        from onnx_iron.provider.devices.npu.compile import compile_for_npu

        return compile_for_npu(request, subgraph, provider, options)

    def memory(self) -> Memory:
        """Memory that the host and the NPU share."""
        from onnx_iron.provider.devices.npu.arrays import NPU

        return NPU

    def fallbacks(self, provider: int) -> Fallbacks:
        """The calls that the NPU failed."""
        from onnx_iron.provider.devices.npu.runtime import fallbacks

        return fallbacks(provider)
