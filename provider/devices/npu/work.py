"""Steps with who does them: the parts of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from onnx_iron.kernels.designs.design import Access
from onnx_iron.provider.devices.npu.artifacts import MOST_BUFFERS, Artifact, content, with_numbers
from onnx_iron.provider.lowering import KernelCall, Lowering


class Place(Enum):
    """Where a root's bytes are."""

    INPUT = "input"
    CONSTANT = "constant"  # an input that never changes
    JOINED = "joined"  # several such inputs, one behind the other
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
        step: what it reads and writes.
        parts: the steps of the subgraph that it is.
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
    parts: tuple[KernelCall, ...] = ()

    def __post_init__(self) -> None:
        self.parts = self.parts or (self.step,)

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


@dataclass(frozen=True)
class Run:
    """Steps of the NPU that are one run, for their designs share a configuration."""

    work: tuple[Work, ...]

    @property
    def artifact(self) -> Artifact:
        """The first step's, whose configuration is that of all."""
        made = self.work[0].artifact
        assert made is not None
        return made

    @property
    def buffers(self) -> list[str]:
        """The operands of all steps, each once."""
        return list(dict.fromkeys(name for work in self.work for name in work.operands))

    @cached_property
    def _joined(self) -> tuple[bytes, list[int]]:
        """The instructions for some values, and how far each step's are from where they were."""
        numbers = {name: number for number, name in enumerate(self.buffers)}
        parts = []
        for work in self.work:
            assert work.artifact is not None
            words = content(work.artifact.instructions)
            parts.append((words, [numbers[operand] for operand in work.operands]))
        return self.artifact.compiler.join(parts)

    def instructions(self, values: Sequence[int]) -> bytes:
        """What the NPU is told to do, for the steps' per-call values in order."""
        return with_numbers(self._joined[0], self.numbers(values))

    def numbers(self, values: Sequence[int]) -> list[tuple[int, int]]:
        """Where in the instructions these values are, in bytes, and the words there."""
        found, left = [], iter(values)
        for work, moved in zip(self.work, self._joined[1], strict=True):
            assert work.artifact is not None
            own = work.artifact.numbers({name: next(left) for name in work.values})
            found += [(moved + place, number) for place, number in own]
        return found


@dataclass
class Segment:
    """Steps that go out together: to the NPU as one run list, or to the host."""

    on_npu: bool
    work: list[Work]

    @property
    def runs(self) -> list[Run]:
        """The NPU's steps as they are run: neighbours of one configuration together, as far as
        their buffers are no more than a run takes.
        """
        made: list[Run] = []
        for work in self.work:
            if made and follows(work, made[-1].work[-1]):
                longer = Run((*made[-1].work, work))
                if len(longer.buffers) <= MOST_BUFFERS:
                    made[-1] = longer
                    continue
            made.append(Run((work,)))
        return made


def follows(work: Work, before: Work) -> bool:
    """Whether a step of the NPU may be in one run with the one before."""
    if work.artifact is None or before.artifact is None:
        return False
    same = work.artifact.configuration == before.artifact.configuration
    return same and work.artifact.design.told


@dataclass
class Plan:
    """The whole subgraph.

    Attributes:
        pairs: (input, output) numbers that may be one buffer.
        updates: those of them where the NPU writes a part of the input anew.
        joined: roots that are several constant inputs, with these inputs' numbers.
    """

    lowering: Lowering
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    segments: list[Segment]
    homes: Mapping[str, Home]
    arena_bytes: int
    pairs: set[tuple[int, int]]
    updates: set[tuple[int, int]]
    joined: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def work(self) -> list[Work]:
        """All steps in order."""
        return [work for segment in self.segments for work in segment.work]

    @property
    def runs(self) -> int:
        """How many runs of the NPU a call takes."""
        return sum(len(segment.runs) for segment in self.segments if segment.on_npu)
