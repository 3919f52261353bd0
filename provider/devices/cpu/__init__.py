"""The CPU as a device: our kernels on onnxruntime's threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_iron.provider.devices.device import Fallbacks, Places
from onnx_iron.provider.program import Writer
from onnx_iron.provider.states import HOST, Memory
from onnx_iron.provider.subgraph import Subgraph

if TYPE_CHECKING:
    from onnx_iron.provider.options import Options


class Cpu:
    """Runs everything that was claimed."""

    name = "cpu"
    takes_symbols = True

    def unavailable(self) -> str:
        """It is always there."""
        return ""

    def compile(self, request: int, subgraph: Subgraph, provider: int, options: Options) -> Places:
        """Hand over the program of CPU kernels; every node runs here."""
        Writer(subgraph, bool(options.profile)).hand_over(request)
        return {}

    def memory(self) -> Memory:
        """The host's memory."""
        return HOST

    def fallbacks(self, provider: int) -> Fallbacks:
        """None: nothing is left to fall back on."""
        return Fallbacks()
