"""The states of a model between calls: what they are, and the memory they live in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from onnx_iron.provider.specs import BFLOAT16, FLOATS, Array, DType, Spec

ALIGNMENT = 64
FORMAT = "onnx_iron.states.1"


@dataclass(frozen=True)
class StateSpec:
    """A state as a model's metadata declares it; ``output`` is None for one that is only read."""

    name: str
    input: str
    output: str | None
    spec: Spec


def read_states(metadata: str, where: str) -> dict[str, StateSpec]:
    """The states in a model's metadata, by name.

    Raises:
        ValueError: the metadata is not what onnx-iron writes.
    """
    try:
        items = [
            StateSpec(
                name=str(item["name"]),
                input=str(item["input"]),
                output=None if item["output"] is None else str(item["output"]),
                spec=Spec(tuple(int(dim) for dim in item["shape"]), _dtype(item["dtype"])),
            )
            for item in json.loads(metadata)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: the metadata onnx_iron.states can't be read ({error!r})"
        ) from None
    return {item.name: item for item in items}


def _dtype(name: str) -> DType:
    for dtype in FLOATS:
        if dtype.name == name:
            return dtype
    raise ValueError(f"dtype is {name!r}, expected 'float32' or 'bfloat16'")


def aligned(spec: Spec) -> Array:
    """An array of zeros whose address is a multiple of 64."""
    raw = np.zeros(spec.bytes + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    result: Array = raw[begin : begin + spec.bytes].view(spec.dtype).reshape(spec.shape)
    return result


class Memory:
    """Where states live: in the host's memory."""

    def array(self, spec: Spec) -> Array:
        """An array of zeros."""
        return aligned(spec)

    def fetch(self, array: Array) -> None:
        """Bring an array's newest contents to the host, before it reads there."""

    def touch(self, array: Array) -> None:
        """Say that the host wrote to an array."""


HOST = Memory()


class States:
    """One buffer for each state, or two where a model can't update them in place."""

    def __init__(self, specs: Iterable[StateSpec], memory: Memory = HOST) -> None:
        self.specs = {spec.name: spec.spec for spec in specs}
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

    def save(self, path: Path, position: int) -> None:
        """Write all states and the position as a .npz file; bfloat16 as its 16 bits."""
        arrays: dict[str, Any] = {
            f"state:{name}": array.view(np.uint16) if array.dtype == BFLOAT16 else array
            for name, array in ((name, self.fetch(name)) for name in self._current)
        }
        header = {"format": FORMAT, "position": position, "states": describe(self.specs)}
        with path.open("wb") as file:
            np.savez(file, header=np.array(json.dumps(header)), **arrays)

    def restore(self, path: Path) -> int:
        """Read what ``save`` wrote; returns the position. Nothing changes if it does not fit.

        Raises:
            ValueError: another kind of file, or states of other names, shapes or dtypes.
        """
        header, arrays = _read(path)
        check_same(header["states"], describe(self.specs), path)
        for name, spec in self.specs.items():
            stored = arrays[name]
            if (stored.shape, stored.dtype.itemsize) != (spec.shape, spec.dtype.itemsize):
                raise ValueError(f"{path}: state {name!r} is not {spec} as its header says")
        for name, array in arrays.items():
            self._current[name][...] = array.view(self.specs[name].dtype)
            self._memory.touch(self._current[name])
        return int(header["position"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of a file of states."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            if header["format"] != FORMAT or not isinstance(header["position"], int):
                raise ValueError(f"format is {header['format']!r}, expected {FORMAT!r}")
            arrays = {name: file[f"state:{name}"] for name in header["states"]}
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise ValueError(f"{path} holds no states of onnx-iron ({error})") from None
    return header, arrays


def describe(specs: Mapping[str, Spec]) -> dict[str, Any]:
    """States' dtypes and shapes for JSON."""
    return {name: [spec.dtype.name, *spec.shape] for name, spec in specs.items()}


def check_same(found: Mapping[str, Any], expected: Mapping[str, Any], where: Path) -> None:
    """Refuse states that differ, naming the first that does."""
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"{where}: state {name!r} is {_text(found.get(name))}, "
                f"this model's is {_text(expected.get(name))}"
            )


def _text(item: Any) -> str:
    return "absent" if item is None else f"{item[0]} {tuple(item[1:])}"


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
