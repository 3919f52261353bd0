"""What an estimate says of a call, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Line:
    """An operator's runs in a call, added up.

    Attributes:
        busy_us: how long the array is busy: ``dma_us`` where it waits for its transfers, and
            ``compute_us`` where they wait for it.
        dispatch_us, switch_us: what their list and the changes of design cost beside.
    """

    runs: int = 0
    designs: int = 0
    bytes: int = 0
    flops: int = 0
    busy_us: float = 0.0
    dispatch_us: float = 0.0
    switch_us: float = 0.0
    dma_us: float = 0.0
    compute_us: float = 0.0

    def add(self, other: Line) -> None:
        """Add another's."""
        self.runs += other.runs
        self.designs += other.designs
        self.bytes += other.bytes
        self.flops += other.flops
        self.busy_us += other.busy_us
        self.dispatch_us += other.dispatch_us
        self.switch_us += other.switch_us
        self.dma_us += other.dma_us
        self.compute_us += other.compute_us


@dataclass
class Estimate:
    """A model's call.

    Attributes:
        lines: by operator, or by the operators that are one step.
        host: steps that the host does, by operator.
        switches: runs of another configuration than the one before.
        steps: of the NPU, of which neighbours of one configuration are one run.
        run_lists: submissions where a subgraph goes out as a whole.
        each_us, list_us: the whole call, a dispatch a node, and a run list a subgraph.
        filled_us: ``list_us`` for so many tokens in the context, where that makes a difference;
            all else is for a full one.
    """

    lines: dict[str, Line]
    host: dict[str, int]
    switches: int
    steps: int
    run_lists: int
    each_us: float
    list_us: float
    filled_us: dict[int, float] = field(default_factory=dict)

    @property
    def total(self) -> Line:
        """All operators."""
        total = Line()
        for line in self.lines.values():
            total.add(line)
        return total
