"""Steps with who does them: the parts of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from onnx_iron.kernels.designs.design import Access
from onnx_iron.provider.devices.npu.artifacts import Artifact
from onnx_iron.provider.lowering import KernelCall, Lowering


class Place(Enum):
    """Where a root's bytes are."""

    INPUT = "input"
    CONSTANT = "constant"  # an input that never changes
    LITERAL = "literal"  # a constant of the program's own
    OUTPUT = "output"
    ARENA = "arena"


@dataclass(frozen=True)
class Home:
    """Where a root's bytes are; ``index`` of an input or output, ``offset`` in the arena."""

    place: Place
    index: int = 0
    offset: int = 0


@dataclass
class Work:
    """A step, and who does it.

    Attributes:
        artifact: the design, where the NPU does it.
        reason: why the host does.
        natural: the host does it by nature.
        operands: the design's buffers as the step's values, in the design's order.
        written: which of these the NPU writes.
        values: the design's per-call values by name: a scalar value and the element's index.
    """

    step: KernelCall
    artifact: Artifact | None = None
    reason: str = ""
    natural: bool = False
    operands: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    values: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def on_npu(self) -> bool:
        """Whether the NPU does it."""
        return self.artifact is not None

    @property
    def is_update(self) -> bool:
        """Whether the NPU writes a part of a value, and leaves the rest of it as it was."""
        return self.artifact is not None and any(
            buffer.access is Access.UPDATE for buffer in self.artifact.design.buffers
        )


@dataclass
class Segment:
    """Steps that go out together: to the NPU as one run list, or to the host."""

    on_npu: bool
    work: list[Work]


@dataclass
class Plan:
    """The whole subgraph.

    Attributes:
        pairs: (input, output) numbers that may be one buffer.
        updates: those of them where the NPU writes a part of the input anew.
    """

    lowering: Lowering
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    segments: list[Segment]
    homes: Mapping[str, Home]
    arena_bytes: int
    pairs: set[tuple[int, int]]
    updates: set[tuple[int, int]]

    @property
    def work(self) -> list[Work]:
        """All steps in order."""
        return [work for segment in self.segments for work in segment.work]

    @property
    def runs(self) -> int:
        """How many designs a call runs."""
        return sum(work.on_npu for work in self.work)
