"""What a device is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from onnx_iron.provider.options import Options
    from onnx_iron.provider.states import Memory
    from onnx_iron.provider.subgraph import Subgraph

# By a node's name the device that runs it, and why it is not the one that was asked for; empty
# where it is, and where that one leaves such nodes to others by nature.
Places: TypeAlias = Mapping[str, tuple[str, str]]


@dataclass
class Fallbacks:
    """How often a session's calls went to the CPU after all, and why the last one did."""

    count: int = 0
    reason: str = ""


class Device(Protocol):
    """What runs subgraphs.

    Attributes:
        name: as the provider's option ``device`` says it.
        takes_symbols: whether a subgraph's dimensions may be symbols, for programs of all shapes.
    """

    name: str
    takes_symbols: bool

    def unavailable(self) -> str:
        """Why this machine has none to use; empty where it has."""
        ...

    def compile(self, request: int, subgraph: Subgraph, provider: int, options: Options) -> Places:
        """Hand over to the native side what runs a subgraph.

        Args:
            request: the native side's, which takes the program.
            provider: the number of the session's provider.

        Returns:
            Where the nodes run that don't all run here by nature.

        Raises:
            CompileError: the device can't run a step, and the options allow no other to.
        """
        ...

    def memory(self) -> Memory:
        """Where states live that nothing has to copy between calls."""
        ...

    def fallbacks(self, provider: int) -> Fallbacks:
        """What a session's calls fell back on so far."""
        ...
