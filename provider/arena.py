"""Where in the arena each value is, from how long it lives."""

from __future__ import annotations

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
    offsets: dict[str, int] = {}
    live: dict[str, tuple[int, int]] = {}  # root -> begin, end
    for position, step in enumerate(steps):
        for index, name in enumerate(step.outputs):
            if name in elsewhere or name in offsets:
                continue
            reused = _dying_input(lowering, step, index, position, last_read, live, in_place)
            if reused is not None:
                live[name] = live.pop(reused)
            else:
                size = -(-max(lowering.specs[name].bytes, 1) // ALIGNMENT) * ALIGNMENT
                begin = _first_gap(live.values(), size)
                live[name] = (begin, begin + size)
            offsets[name] = live[name][0]
        live = {name: span for name, span in live.items() if last_read[name] > position}
    return offsets


def _first_gap(spans: Collection[tuple[int, int]], size: int) -> int:
    begin = 0
    for taken, end in sorted(spans):
        if begin + size <= taken:
            break
        begin = max(begin, end)
    return begin


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
