"""Where in the arena each value is, from how long it lives."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from onnx_iron.provider.in_place import candidates
from onnx_iron.provider.lowering import Lowering, Step

ALIGNMENT = 64

InPlace: TypeAlias = Callable[[Step, int, Lowering], Sequence[int]]


def plan_arena(
    lowering: Lowering,
    steps: Sequence[Step],
    elsewhere: Collection[str],
    in_place: InPlace = candidates,
) -> dict[str, int]:
    """Byte offsets of the steps' outputs; bytes are used again once nobody reads them.

    Args:
        lowering: specs and views.
        steps: in the order in which they run.
        elsewhere: roots that live in an output's buffer.
        in_place: the inputs whose bytes an output of a step may take, by number.
    """
    last_read: dict[str, int] = {}
    for position, step in enumerate(steps):
        for name in step.outputs:
            last_read[name] = position
        for given in step.inputs:
            if given is not None:
                last_read[lowering.resolve(given)[0]] = position
    dying: dict[int, list[str]] = {}
    for name, position in last_read.items():
        dying.setdefault(position, []).append(name)
    offsets: dict[str, int] = {}
    live: dict[str, tuple[int, int]] = {}  # root -> begin, end
    free = _Gaps()
    for position, step in enumerate(steps):
        for index, name in enumerate(step.outputs):
            if name in elsewhere or name in offsets:
                continue
            reused = _dying_input(lowering, step, index, position, last_read, live, in_place)
            if reused is not None:
                live[name] = live.pop(reused)
            else:
                size = -(-max(lowering.specs[name].bytes, 1) // ALIGNMENT) * ALIGNMENT
                begin = free.take(size)
                live[name] = (begin, begin + size)
            offsets[name] = live[name][0]
        for name in dying.get(position, ()):
            if name in live:
                free.give(*live.pop(name))
    return offsets


class _Gaps:
    """The bytes that nobody uses: sorted, apart from each other, the last without an end."""

    def __init__(self) -> None:
        self._begins, self._ends = [0], [1 << 63]

    def take(self, size: int) -> int:
        """Where the first gap of a size begins, which is taken from it."""
        spans = zip(self._begins, self._ends, strict=True)
        at = next(i for i, (begin, end) in enumerate(spans) if end - begin >= size)
        begin = self._begins[at]
        self._begins[at] += size
        if self._begins[at] == self._ends[at]:
            del self._begins[at], self._ends[at]
        return begin

    def give(self, begin: int, end: int) -> None:
        """Give bytes back; gaps that touch become one."""
        at = bisect.bisect(self._begins, begin)
        if self._begins[at] == end:
            end = self._ends[at]
            del self._begins[at], self._ends[at]
        if at > 0 and self._ends[at - 1] == begin:
            self._ends[at - 1] = end
        else:
            self._begins.insert(at, begin)
            self._ends.insert(at, end)


def _dying_input(
    lowering: Lowering,
    step: Step,
    output: int,
    position: int,
    last_read: dict[str, int],
    live: dict[str, tuple[int, int]],
    in_place: InPlace,
) -> str | None:
    """An input that nobody reads after this step, and whose bytes the output may take."""
    size = lowering.specs[step.outputs[output]].bytes
    for index in in_place(step, output, lowering):
        name = step.inputs[index]
        assert name is not None
        root, offset = lowering.resolve(name)
        dies = root in live and last_read[root] == position
        if dies and offset == 0 and lowering.specs[root].bytes == size:
            return root
    return None
