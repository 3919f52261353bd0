"""The numbers that a core is told before a step, as IRON's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnx_iron.kernels.designs.configuration import told_words, words_of
from onnx_iron.kernels.designs.design import Call, Design
from onnx_iron.kernels.designs.iron import Iron


class Numbers:
    """What a core is told, as ``configuration.numbers`` has it in a row.

    Attributes:
        trips: of each loop but the innermost.
        chunks: by stream, how many there are.
    """

    def __init__(self, design: Design, iron: Iron, words: Any, ready: Any) -> None:
        ready.wait_for_value(1)
        self._iron = iron
        count = iter(range(told_words(design)))
        self.trips = [words[next(count)] for _ in design.columns[0][1:]]
        self._inner, self._more = words[next(count)], words[next(count)]
        self.chunks = {s.name: words[next(count)] for s in design.streams if s.chunk}
        self._arguments = {
            call.kernel: [words[next(count)] for _ in range(words_of(call))]
            for call in design.calls
        }
        ready.release_with_value(1)

    def inner(self, around: Sequence[Any]) -> Any:
        """How often the innermost loop runs, in a pass of those around it: ``around`` are their
        indices, and the first pass is where all are 0.
        """
        i32, arith = self._iron.types.i32(), self._iron.arith
        first = arith.constant(i32, 1)
        for index in around:
            turned = arith.muli(arith.index_cast(i32, index), arith.constant(i32, -1))
            first = arith.addi(first, turned)
        first = arith.maxsi(first, arith.constant(i32, 0))
        return arith.addi(self._inner, arith.muli(first, self._more))

    def arguments(self, call: Call) -> Iterator[Any]:
        """The numbers for a call's arguments, in their order."""
        return iter(self._arguments[call.kernel])
