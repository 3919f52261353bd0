"""What sequences tell cores: words in their memory, and locks that say that they are there."""

from __future__ import annotations

from typing import Any

from iron_values import Value, size_of


def told(stub: Any) -> tuple[Any, Any]:
    """The API's Buffer and WorkerRuntimeBarrier; ``stub.groups`` is None but in a sequence."""

    class Buffer:
        def __init__(
            self,
            type: Any = None,
            initial_value: Any = None,
            name: str | None = None,
            tile: Any = None,
            use_write_rtp: bool = False,
        ) -> None:
            assert name is not None
            self.type, self.name, self.is_told = type, name, use_write_rtp
            self.words: dict[int, int] = {}

        def __setitem__(self, place: int, word: int) -> None:
            if not self.is_told or stub.groups is None:
                raise ValueError(f"{self.name} is written outside of a sequence")
            if not 0 <= place < size_of(self.type) or not -(1 << 31) <= word < 1 << 31:
                raise ValueError(f"word {place} of {self.name} is {word}")
            self.words[place] = word

        def __getitem__(self, place: int) -> Value:
            if place not in self.words:
                raise ValueError(f"word {place} of {self.name} is read and never written")
            return Value(self.words[place], "i32")

    class WorkerRuntimeBarrier:
        """A lock that the sequence sets, and a core takes and gives back."""

        def __init__(self, initial_value: int = 0) -> None:
            self.value = initial_value

        def set(self, value: int) -> None:
            if stub.groups is None:
                raise ValueError("a barrier is set outside of a sequence")
            self.value = value

        def wait_for_value(self, value: int) -> None:
            if self.value != value:
                raise ValueError(f"a core waits for ever for {value}")

        def release_with_value(self, value: int) -> None:
            assert value == self.value
            self.value = 0

    return Buffer, WorkerRuntimeBarrier
