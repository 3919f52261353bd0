"""The numbers that a core is told before a step, as IRON's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx_iron.kernels.designs.configuration import numbers, words_of
from onnx_iron.kernels.designs.design import Call, Design


class Numbers:
    """What a core is told, as ``configuration.numbers`` has it in a row.

    Attributes:
        trips: of each loop.
        chunks: by stream, how many there are.
    """

    def __init__(self, design: Design, words: Any, ready: Any) -> None:
        ready.wait_for_value(1)
        count = iter(range(len(numbers(design, 0))))
        self.trips = [words[next(count)] for _ in design.columns[0]]
        self.chunks = {s.name: words[next(count)] for s in design.streams if s.chunk}
        self._arguments = {
            call.kernel: [words[next(count)] for _ in range(words_of(call))]
            for call in design.calls
        }
        ready.release_with_value(1)

    def arguments(self, call: Call) -> Iterator[Any]:
        """The numbers for a call's arguments, in their order."""
        return iter(self._arguments[call.kernel])
