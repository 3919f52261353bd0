"""The order of a program's steps, and which of its outputs take an input's place.

Every value lives in the bytes of its *root*: an input, a literal, or the output of a step. A root
that is an output of the subgraph is written straight into that output's buffer. Where the buffer
may be an input's own (a state updated in place), all other readers of the input come first.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from onnx_iron.operators.copy import Copy
from onnx_iron.provider.in_place import candidates
from onnx_iron.provider.lowering import KernelCall, Lowering


@dataclass
class Schedule:
    """Steps in order.

    Attributes:
        steps: what to run.
        placed: the roots that live in an output's buffer, with the output's number.
        pairs: (input, output) numbers that may be one buffer.
    """

    steps: list[KernelCall]
    placed: dict[str, int]
    pairs: list[tuple[int, int]]


@dataclass
class _Edges:
    """Who must come before whom, by positions in the list of steps.

    Attributes:
        order: positions in a valid order, as near as possible to the given one.
        place: where in the order each position is.
        written: by root, the reader that all others come before.
    """

    lowering: Lowering
    steps: Sequence[KernelCall]
    producer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, set[int]] = field(default_factory=dict)
    after: dict[int, set[int]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    _latest: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = list(range(len(self.steps)))
        self.place = list(self.order)
        for position, step in enumerate(self.steps):
            self.producer.update(dict.fromkeys(step.outputs, position))
        for position, step in enumerate(self.steps):
            for name in step.inputs:
                if name is not None:
                    root = self.lowering.resolve(name)[0]
                    self.readers.setdefault(root, set()).add(position)
        for root, positions in self.readers.items():
            if root in self.producer:
                self.after.setdefault(self.producer[root], set()).update(positions)

    def others_first(self, root: str, writer: int) -> bool:
        """Put every other reader of ``root`` before ``writer``, which is one; False if some can't
        be."""
        if root in self.written:
            return self.written[root] == writer
        readers = self.readers[root]
        latest = self._latest_place(root)
        if latest > self.place[writer] and not self._move_behind(latest, writer, readers):
            return False
        for reader in readers:
            if reader != writer:
                self.after.setdefault(reader, set()).add(writer)
        self.written[root] = writer
        return True

    def _latest_place(self, root: str) -> int:
        """The place of a root's last reader."""
        if root not in self._latest:
            self._latest[root] = max(self.place[reader] for reader in self.readers[root])
        return self._latest[root]

    def _move_behind(self, last: int, writer: int, readers: Collection[int]) -> bool:
        """Move a step and those that wait for it behind a place; False where one of them is a
        reader."""
        moved, stack = {writer}, [writer]
        while stack:
            for later in self.after.get(stack.pop(), ()):
                if later in moved or self.place[later] > last:
                    continue
                if later in readers:
                    return False
                moved.add(later)
                stack.append(later)
        first = self.place[writer]
        between = self.order[first : last + 1]
        between.sort(key=lambda position: position in moved)
        self.order[first : last + 1] = between
        for place, position in enumerate(between, first):
            self.place[position] = place
        self._latest.clear()
        return True


def in_order(
    count: int,
    after: Mapping[int, Collection[int]],
    choose: Callable[[Sequence[int]], int] = lambda ready: 0,
) -> list[int]:
    """Positions in a valid order.

    Args:
        count: how many there are.
        after: for each position those that come later.
        choose: which of the positions that are ready is next, by its place among them; they ascend.
    """
    waits = Counter(later for laters in after.values() for later in laters)
    ready = [position for position in range(count) if not waits[position]]
    order = []
    while ready:
        position = ready.pop(choose(ready))
        order.append(position)
        for later in after.get(position, ()):
            waits[later] -= 1
            if not waits[later]:
                bisect.insort(ready, later)
    return order


def schedule(
    lowering: Lowering, inputs: Sequence[str], constant: Sequence[bool], outputs: Sequence[str]
) -> Schedule:
    """Order the steps that the outputs need.

    Args:
        lowering: steps and views; gains a copy for each output that has no bytes of its own.
        inputs: names of the subgraph's inputs.
        constant: which of them never change.
        outputs: names of its outputs.
    """
    placed = place_outputs(lowering, outputs)
    steps = needed(lowering, placed)
    edges = _Edges(lowering, steps)
    numbers = {name: number for number, name in enumerate(inputs) if not constant[number]}
    pairs = []
    updates_first = sorted(
        placed.items(), key=lambda item: not steps[edges.producer[item[0]]].op.updates
    )
    for root, output in updates_first:
        pairs += _pair(lowering, edges, numbers, placed, root, output)
    return Schedule([steps[position] for position in edges.order], placed, pairs)


def place_outputs(lowering: Lowering, outputs: Sequence[str]) -> dict[str, int]:
    """Give every output a root that is written into its buffer."""
    made = {name for step in lowering.steps for name in step.outputs}
    placed: dict[str, int] = {}
    for number, name in enumerate(outputs):
        root, _ = lowering.resolve(name)
        same_size = lowering.specs[root].bytes == lowering.specs[name].bytes
        if root not in made or root in placed or not same_size:
            root = lowering.fresh(name, lowering.specs[name])
            lowering.steps.append(KernelCall(name, Copy(), [name], [root]))
        placed[root] = number
    return placed


def needed(lowering: Lowering, placed: Mapping[str, int]) -> list[KernelCall]:
    """The steps that some output depends on."""
    producer = {name: step for step in lowering.steps for name in step.outputs}
    alive: set[int] = set()
    stack = [producer[root] for root in placed]
    while stack:
        step = stack.pop()
        if id(step) in alive:
            continue
        alive.add(id(step))
        for name in step.inputs:
            root = None if name is None else lowering.resolve(name)[0]
            if root in producer:
                stack.append(producer[root])
    return [step for step in lowering.steps if id(step) in alive]


def _pair(
    lowering: Lowering,
    edges: _Edges,
    numbers: Mapping[str, int],
    placed: dict[str, int],
    root: str,
    output: int,
) -> list[tuple[int, int]]:
    """Find inputs that the output can share a buffer with.

    A state that is updated several times passes through values of its size: they all take the
    output's buffer, so that the last one needs no copy of the first.
    """
    while True:
        writer = edges.producer[root]
        step = edges.steps[writer]
        inner = None
        pairs = []
        for index in candidates(step, step.outputs.index(root), lowering):
            name = step.inputs[index]
            assert name is not None
            source, offset = lowering.resolve(name)
            if offset or lowering.specs[source].bytes != lowering.specs[root].bytes:
                continue
            if source in numbers:
                if edges.others_first(source, writer):
                    pairs.append((numbers[source], output))
            elif step.op.updates and source in edges.producer and source not in placed:
                inner = source
        if inner is None or not edges.others_first(inner, writer):
            return pairs
        placed[inner] = output
        root = inner
