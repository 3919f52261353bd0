"""Where in the arena each value is, from how long it lives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx_iron.native import library
from onnx_iron.provider.in_place import candidates
from onnx_iron.provider.lowering import Lowering, Step

ALIGNMENT = 64

InPlace: TypeAlias = Callable[[Step, int, Lowering], Sequence[int]]


@dataclass
class Span:
    """Bytes that values live in, one after the other: from a step to a step, both included."""

    begin: int
    end: int
    bytes: int


def plan_spans(
    lowering: Lowering,
    steps: Sequence[Step],
    elsewhere: Collection[str],
    in_place: InPlace = candidates,
) -> tuple[list[Span], dict[str, int]]:
    """What the arena holds, in the order of its beginning, and which of it each output is in.

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
    spans: list[Span] = []
    held: dict[str, int] = {}
    gone: set[str] = set()
    for position, step in enumerate(steps):
        for index, name in enumerate(step.outputs):
            if name in elsewhere or name in held:
                continue
            reused = None
            for root in _dying_inputs(lowering, step, index, position, last_read, in_place):
                if root in held and root not in gone:
                    reused = root
                    break
            if reused is None:
                held[name] = len(spans)
                spans.append(Span(position, last_read[name], lowering.specs[name].bytes))
            else:
                gone.add(reused)
                held[name] = held[reused]
                spans[held[name]].end = last_read[name]
    return spans, held


def plan_arena(
    lowering: Lowering,
    steps: Sequence[Step],
    elsewhere: Collection[str],
    in_place: InPlace = candidates,
) -> dict[str, int]:
    """Byte offsets of the steps' outputs; bytes are used again once nobody reads them.

    The arguments are those of ``plan_spans``.
    """
    spans, held = plan_spans(lowering, steps, elsewhere, in_place)
    numbers = [number for span in spans for number in (span.begin, span.end, span.bytes)]
    offsets = (ctypes.c_int64 * len(spans))()
    library().onnx_iron_arena_offsets(
        (ctypes.c_int64 * len(numbers))(*numbers), len(spans), offsets
    )
    return {name: offsets[number] for name, number in held.items()}


def _dying_inputs(
    lowering: Lowering,
    step: Step,
    output: int,
    position: int,
    last_read: dict[str, int],
    in_place: InPlace,
) -> list[str]:
    """The inputs that nobody reads after this step, and whose bytes the output may take."""
    size = lowering.specs[step.outputs[output]].bytes
    roots = []
    for index in in_place(step, output, lowering):
        name = step.inputs[index]
        assert name is not None
        root, offset = lowering.resolve(name)
        dies = last_read[root] == position
        if dies and offset == 0 and lowering.specs[root].bytes == size:
            roots.append(root)
    return roots
