"""One ONNX model open in onnxruntime, called through bound buffers."""

from __future__ import annotations

import ctypes
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onnx_iron.provider.specs import (
    BFLOAT16,
    BOOL,
    FLOAT32,
    INT32,
    INT64,
    NUMBERS,
    Array,
    DType,
    Shape,
    Spec,
)
from onnx_iron.provider.states import States, StateSpec, aligned, read_states

TYPES: dict[str, DType] = {
    "tensor(float)": FLOAT32,
    "tensor(bfloat16)": BFLOAT16,
    "tensor(int32)": INT32,
    "tensor(int64)": INT64,
    "tensor(bool)": BOOL,
}


@dataclass(frozen=True)
class Port:
    """An input or an output; a dim that only a call knows is None."""

    name: str
    dtype: DType
    dims: tuple[int | None, ...]

    def spec(self) -> Spec | None:
        """The type, where every dim is known."""
        if None in self.dims:
            return None
        return Spec(tuple(dim for dim in self.dims if dim is not None), self.dtype)

    def fits(self, shape: Shape) -> bool:
        """Whether an array may have this shape."""
        return len(shape) == len(self.dims) and all(
            dim is None or dim == given for dim, given in zip(self.dims, shape, strict=True)
        )

    def __str__(self) -> str:
        dims = ", ".join("any" if dim is None else str(dim) for dim in self.dims)
        return f"{self.dtype.name} ({dims}{',' if len(self.dims) == 1 else ''})"


class Model:
    """A model with its states bound.

    Attributes:
        inputs: the inputs that a call gives, by name: all but the states.
        outputs: the outputs that a call gives back.
        states: the states it reads and writes.
        bounds: for each per-call value the (input, axis) pairs that it bounds.
        context: the number of rows that the states have room for, where the model says it.
    """

    def __init__(self, path: Path, session: onnxruntime.InferenceSession) -> None:
        self.path = path
        self.session = session
        metadata = session.get_modelmeta().custom_metadata_map
        self.states = read_states(metadata.get("onnx_iron.states", "[]"), str(path))
        self.bounds = _read_bounds(metadata.get("onnx_iron.values", "{}"), str(path))
        context = metadata.get("onnx_iron.context", "")
        self.context = int(context) if context.isdecimal() else None
        inputs = {item.name: _port(item, path) for item in session.get_inputs()}
        outputs = {item.name: _port(item, path) for item in session.get_outputs()}
        for state in self.states.values():
            _check_state(state, inputs, outputs, path)
        past = {state.input for state in self.states.values()}
        present = {state.output for state in self.states.values()}
        self.inputs = {name: port for name, port in inputs.items() if name not in past}
        self.outputs = {name: port for name, port in outputs.items() if name not in present}
        self._binding = session.io_binding()
        self._given = self._bind_all(self._binding.bind_input, self.inputs)
        self._made = self._bind_all(self._binding.bind_output, self.outputs)
        for name in self.outputs.keys() - self._made.keys():
            self._binding.bind_output(name, "cpu")
        self._in_place = False

    def _bind_all(self, bind: Any, ports: Mapping[str, Port]) -> dict[str, Array]:
        """A buffer for every port whose shape is known, bound for good."""
        buffers = {}
        for name, port in ports.items():
            spec = port.spec()
            if spec is not None:
                buffers[name] = aligned(spec)
                _bind(bind, name, buffers[name])
        return buffers

    def bind_states(self, states: States, in_place: bool) -> None:
        """Use these states from now on, each with one buffer or with two in turn."""
        self._in_place = in_place
        self._bind_states(states)

    def _bind_states(self, states: States) -> None:
        for name, state in self.states.items():
            _bind(self._binding.bind_input, state.input, states.current(name))
            if state.output is not None:
                into = states.current(name) if self._in_place else states.next(name)
                _bind(self._binding.bind_output, state.output, into)

    def rows_value(self) -> str | None:
        """The per-call value that says how many rows of a chunk are valid, if there is one."""
        found = [name for name, bounds in self.bounds.items() if any(a == 0 for _, a in bounds)]
        return found[0] if found else None

    def row_inputs(self) -> list[str]:
        """The inputs that have a row for each token or sample."""
        rows = self.rows_value()
        if rows is not None:
            return [name for name, axis in self.bounds[rows] if axis == 0]
        return [name for name, port in self.inputs.items() if port.dims and name not in self.bounds]

    def check(self, where: str, inputs: Mapping[str, Array]) -> None:
        """Refuse inputs whose names, dtypes or shapes are not the model's.

        Raises:
            ValueError: an unknown or missing name, or a shape.
            TypeError: a dtype.
        """
        for name, array in inputs.items():
            port = self.inputs.get(name)
            if port is None:
                raise ValueError(f"{where}: {unknown(name, list(self.inputs))}")
            if array.dtype != port.dtype:
                raise TypeError(
                    f"{where}: input {name!r} is {array.dtype.name}, expected {port.dtype.name}"
                )
            if not port.fits(array.shape):
                raise ValueError(
                    f"{where}: input {name!r} has shape {array.shape}, expected {port}"
                )
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise ValueError(
                f"{where}: input {missing[0]!r} is missing; it is {self.inputs[missing[0]]}"
            )

    def call(self, inputs: Mapping[str, Array], states: States) -> dict[str, Array]:
        """Run once, with checked inputs. The states move on; the results are the caller's own."""
        kept = []
        for name, array in inputs.items():
            if name in self._given:
                self._given[name][...] = array
            else:
                kept.append(np.ascontiguousarray(array))
                _bind(self._binding.bind_input, name, kept[-1])
        if not self._in_place:
            self._bind_states(states)
        self.session.run_with_iobinding(self._binding)
        if not self._in_place:
            for name, state in self.states.items():
                if state.output is not None:
                    states.swap(name)
        results = {name: array.copy() for name, array in self._made.items()}
        if len(results) < len(self.outputs):
            results.update(self._open_outputs())
        return {name: results[name] for name in self.outputs}

    def _open_outputs(self) -> dict[str, Array]:
        """Copies of the outputs that have no buffer of ours."""
        names = [item.name for item in self.session.get_outputs()]
        values = dict(zip(names, self._binding.get_outputs(), strict=True))
        results = {}
        for name, port in self.outputs.items():
            if name not in self._made:
                spec = Spec(tuple(values[name].shape()), port.dtype)
                raw = ctypes.string_at(values[name].data_ptr(), spec.bytes)
                results[name] = np.frombuffer(bytearray(raw), port.dtype).reshape(spec.shape)
        return results


def _bind(bind: Any, name: str, array: Array) -> None:
    bind(name, "cpu", 0, NUMBERS[array.dtype], list(array.shape), array.ctypes.data)


def unknown(name: str, known: list[str]) -> str:
    """What to say of a name that is not there."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown input {name!r}, expected {', '.join(map(repr, known)) or 'none'}{hint}"


def _port(item: Any, path: Path) -> Port:
    if item.type not in TYPES:
        raise ValueError(
            f"{path}: {item.name!r} is {item.type}; onnx_iron.Session takes {list(TYPES)}"
        )
    dims = tuple(dim if isinstance(dim, int) else None for dim in item.shape)
    return Port(item.name, TYPES[item.type], dims)


def _read_bounds(metadata: str, where: str) -> dict[str, list[tuple[str, int]]]:
    try:
        return {
            str(name): [(str(bound["input"]), int(bound["axis"])) for bound in item["bounds"]]
            for name, item in json.loads(metadata).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: the metadata onnx_iron.values can't be read ({error!r})"
        ) from None


def _check_state(
    state: StateSpec, inputs: Mapping[str, Port], outputs: Mapping[str, Port], path: Path
) -> None:
    for name, ports in ((state.input, inputs), (state.output, outputs)):
        if name is None:
            continue
        port = ports.get(name)
        if port is None or port.spec() != state.spec:
            found = "absent" if port is None else str(port)
            raise ValueError(
                f"{path}: state {state.name!r} is declared as {state.spec}, {name!r} is {found}"
            )
