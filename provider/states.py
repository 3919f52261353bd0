"""The states of a model between calls: what they are, and the memory they live in."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnx_iron.dtypes import NUMBERS, Array, Spec
from onnx_iron.export.metadata import read_json, unreadable
from onnx_iron.provider.saved import read_saved, write_saved

ALIGNMENT = 64
STATES = "onnx_iron.states"


@dataclass(frozen=True)
class StateSpec:
    """A state as a model's metadata declares it.

    Attributes:
        output: None for one that is only read.
        by_position: a call at a position reads nothing that later ones wrote.
    """

    name: str
    input: str
    output: str | None
    spec: Spec
    by_position: bool = False


def read_states(metadata: str, where: str) -> dict[str, StateSpec]:
    """The states in a model's metadata, by name.

    Raises:
        ValueError: the metadata is not what onnx-iron writes.
    """
    items = read_json(metadata, STATES, where)
    if not isinstance(items, list):
        raise unreadable(where, STATES, f"{reprlib.repr(items)}, expected a list")
    found = [_read_state(item, where) for item in items]
    for what in ("name", "input", "output"):
        given = [getattr(state, what) for state in found if getattr(state, what) is not None]
        for name, count in Counter(given).items():
            if count > 1:
                raise unreadable(where, STATES, f"{count} states have the {what} {name!r}")
    return {state.name: state for state in found}


def _read_state(item: Any, where: str) -> StateSpec:
    keys = ("name", "input", "output", "shape", "dtype")
    if not isinstance(item, dict) or any(key not in item for key in keys):
        raise unreadable(where, STATES, f"{reprlib.repr(item)}, expected an object with {keys}")
    shape = item["shape"]
    texts = [item["name"], item["input"], item["dtype"], item["output"] or ""]
    if not all(isinstance(text, str) for text in texts):
        raise unreadable(where, STATES, f"{reprlib.repr(item)}, expected texts as {keys[:3]}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise unreadable(where, STATES, f"shape is {reprlib.repr(shape)}, expected sizes")
    dtype = next((dtype for dtype in NUMBERS if dtype.name == item["dtype"]), None)
    if dtype is None:
        expected = ", ".join(repr(known.name) for known in NUMBERS)
        raise unreadable(
            where, STATES, f"dtype is {reprlib.repr(item['dtype'])}, expected one of {expected}"
        )
    by_position = item.get("by_position", False)  # older exports don't say
    if type(by_position) is not bool:
        shown = reprlib.repr(by_position)
        raise unreadable(where, STATES, f"by_position is {shown}, expected true or false")
    spec = Spec(tuple(shape), dtype)
    return StateSpec(item["name"], item["input"], item["output"], spec, by_position)


def aligned(spec: Spec, what: str = "a tensor") -> Array:
    """An array of zeros whose address is a multiple of 64.

    Raises:
        ValueError: there is no such memory; ``what`` it was for is named.
    """
    try:
        raw = np.zeros(spec.bytes + ALIGNMENT, np.uint8)
    except (MemoryError, OverflowError, ValueError):
        raise ValueError(
            f"{what} is {spec}, {spec.bytes / 2**30:.1f} GiB, which this machine's memory does not "
            "hold"
        ) from None
    begin = -raw.ctypes.data % ALIGNMENT
    result: Array = raw[begin : begin + spec.bytes].view(spec.dtype).reshape(spec.shape)
    return result


class Memory:
    """Where states live: in the host's memory."""

    def array(self, spec: Spec) -> Array:
        """An array of zeros."""
        return aligned(spec, "a state")

    def fetch(self, array: Array) -> None:
        """Bring an array's newest contents to the host, before it reads there."""

    def touch(self, array: Array) -> None:
        """Say that the host wrote to an array."""


HOST = Memory()


class States:
    """One buffer for each state, or two where a model can't update them in place."""

    def __init__(self, specs: Iterable[StateSpec], memory: Memory = HOST) -> None:
        self._described = list(specs)
        self.specs = {spec.name: spec.spec for spec in self._described}
        self._memory = memory
        self._current = {name: memory.array(spec) for name, spec in self.specs.items()}
        self._next: dict[str, Array] = {}

    def current(self, name: str) -> Array:
        """The state's memory."""
        return self._current[name]

    def next(self, name: str) -> Array:
        """Memory for the state's next contents, apart from the current ones."""
        if name not in self._next:
            self._next[name] = self._memory.array(self.specs[name])
        return self._next[name]

    def swap(self, name: str) -> None:
        """The next contents become the current ones."""
        self._current[name], self._next[name] = self._next[name], self._current[name]

    def fetch(self, name: str) -> Array:
        """The state's memory with its newest contents, wherever they were."""
        self._memory.fetch(self._current[name])
        return self._current[name]

    def reset(self) -> None:
        """Zero everything."""
        for array in self._current.values():
            array.view(np.uint8).fill(0)
            self._memory.touch(array)

    def copied(self) -> States:
        """States of their own, with the same contents."""
        others = States(self._described, self._memory)
        for name, array in others._current.items():
            array[...] = self.fetch(name)
            self._memory.touch(array)
        return others

    def save(self, path: Path, position: int) -> None:
        """Write all states and the position as a .npz file; bfloat16 as its 16 bits."""
        write_saved(path, {name: self.fetch(name) for name in self._current}, position)

    def restore(self, path: Path) -> int:
        """Read what ``save`` wrote; returns the position. Nothing changes if it does not fit.

        Raises:
            OSError: the file can't be opened.
            ValueError: another kind of file, or states of other names, shapes or dtypes.
        """
        position, arrays = read_saved(path, self.specs)
        for name, array in arrays.items():
            self._current[name][...] = array
            self._memory.touch(self._current[name])
        return position


def merged(models: Mapping[Path, Mapping[str, StateSpec]]) -> list[StateSpec]:
    """The states of models that share them.

    Raises:
        ValueError: one of a different type in two models.
    """
    found: dict[str, tuple[Path, StateSpec]] = {}
    for path, states in models.items():
        for name, state in states.items():
            other, known = found.setdefault(name, (path, state))
            if known.spec != state.spec:
                raise ValueError(
                    f"state {name!r} is {known.spec} in {other} and {state.spec} in {path}"
                )
    return [state for _, state in found.values()]
