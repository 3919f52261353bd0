"""One ONNX model open in onnxruntime, called through bound buffers."""

from __future__ import annotations

import ctypes
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onnx_iron.dtypes import (
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
from onnx_iron.export.metadata import (
    BOUNDS,
    LIMITS,
    VALUES,
    read_bounds,
    read_limits,
    read_values,
    unreadable,
)
from onnx_iron.graph.value import Value
from onnx_iron.provider.states import STATES, States, StateSpec, aligned, read_states

CONTEXT, BATCH = "onnx_iron.context", "onnx_iron.batch"
WHOLE = "onnx_iron.whole"

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
        values: the per-call values.
        bounds: of inputs and outputs, the axes that only are valid in part, and how far.
        outputs_described: whether ``bounds`` tells of the outputs too; older exports don't.
        limits: the ranges that the operators allow.
        rows_value: the per-call value that says how many rows of a chunk are valid, if there is
            one.
        context: the number of rows that the states have room for, where the model says it.
        batch: the number of sequences that a call runs, where the model says it.
        whole: each row depends on all rows of a call, so that they can't be cut into chunks.
    """

    def __init__(self, path: Path, session: onnxruntime.InferenceSession) -> None:
        self.path = path
        self.session = session
        where = str(path)
        try:
            metadata = session.get_modelmeta().custom_metadata_map
            given, made = session.get_inputs(), session.get_outputs()
            inputs = {item.name: _port(item, path) for item in given}
            outputs = {item.name: _port(item, path) for item in made}
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: a name or a text in it is no UTF-8 ({error})") from None
        self.states = read_states(metadata.get(STATES, "[]"), where)
        values = read_values(metadata.get(VALUES, "{}"), where)
        self.values = list(values)
        self.outputs_described = BOUNDS in metadata
        self.bounds = read_bounds(metadata.get(BOUNDS, "{}"), where)
        for value, axes in values.items():
            for name, axis in axes:
                self.bounds.setdefault(name, {}).setdefault(axis, Value.named(value))
        self.limits = read_limits(metadata.get(LIMITS, "[]"), where)
        self.context = _number(metadata, CONTEXT, where)
        self.batch = _number(metadata, BATCH, where)
        self.whole = metadata.get(WHOLE) == "true"
        for state in self.states.values():
            _check_state(state, inputs, outputs, path)
        past = {state.input for state in self.states.values()}
        present = {state.output for state in self.states.values()}
        self.inputs = {name: port for name, port in inputs.items() if name not in past}
        self.outputs = {name: port for name, port in outputs.items() if name not in present}
        self._check_described(where)
        direct = sorted((axis, self.values.index(v)) for v in values for _, axis in values[v])
        self.rows_value = self.values[direct[0][1]] if direct else None
        self._binding = session.io_binding()
        # Bound at the first call: an input that is declared huge costs nothing before it is given.
        self._given: dict[str, Array] = {}
        self._made: dict[str, Array] | None = None
        self._in_place = False

    def shared(self) -> Model:
        """The same model, weights and all, with bindings of its own."""
        return Model(self.path, self.session)

    def _check_described(self, where: str) -> None:
        """Refuse metadata that speaks of what the model does not have."""
        for name in self.values:
            port = self.inputs.get(name)
            if port is None or port.dtype not in (INT32, INT64) or port.dims not in ((), (1,)):
                found = "absent" if port is None else str(port)
                raise unreadable(where, VALUES, f"{name!r} is {found}, expected one integer")
        for name, axes in self.bounds.items():
            port = self.inputs.get(name) or self.outputs.get(name)
            if port is None or name in self.values or max(axes, default=0) >= len(port.dims):
                raise unreadable(where, BOUNDS, f"{name!r} has no axes {sorted(axes)}")
        for limit in self.limits:
            if limit.input is not None and limit.input not in self.inputs:
                raise unreadable(where, LIMITS, f"{limit.input!r} is no input")
        used = [rows for axes in self.bounds.values() for rows in axes.values()]
        used += [limit.high for limit in self.limits]
        used += [limit.value for limit in self.limits if limit.value is not None]
        for name in {name for value in used for name in value.names()} - set(self.values):
            raise unreadable(where, BOUNDS, f"{name!r} is no per-call value of {self.values}")

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

    def row_axes(self, name: str) -> dict[int, Value]:
        """The axes of an input or an output that follow the rows of a chunk, and how."""
        found = self.bounds.get(name, {})
        return {a: rows for a, rows in found.items() if set(rows.names()) == {self.rows_value}}

    def row_inputs(self) -> dict[str, int]:
        """The inputs that have an entry for each token or sample, and the axis that counts them."""
        if self.rows_value is None:
            found = {n: 0 for n, port in self.inputs.items() if port.dims and n not in self.values}
            said = {
                name: axis
                for name in found
                for axis, bound in self.bounds.get(name, {}).items()
                if bound.fixed() is not None
            }
            return said or found
        rows = Value.named(self.rows_value)
        found = {}
        for name in self.inputs:
            axes = [axis for axis, bound in self.row_axes(name).items() if bound == rows]
            if axes:
                found[name] = axes[0]
        return found

    def check_limits(self, where: str, values: Mapping[str, int]) -> None:
        """Refuse per-call values that an operator of the model would refuse, or not notice.

        Raises:
            ValueError: one is out of its range.
        """
        for limit in self.limits:
            if limit.value is None:
                continue
            number, most = limit.value.evaluate(values), limit.high.evaluate(values)
            if not limit.low <= number <= most:
                raise ValueError(
                    f"{where}: {str(limit.value)!r} is {number}, and the {limit.of} has "
                    f"{limit.size} entries, {limit.expected(values)}"
                )

    def check_elements(self, where: str, inputs: Mapping[str, Array]) -> None:
        """Refuse inputs with integers that are no entries of what they index.

        Raises:
            ValueError: one is out of its range.
        """
        for limit in self.limits:
            array = inputs.get(limit.input or "")
            if array is None or not array.size:
                continue
            most = limit.high.evaluate({})
            wrong = (array < limit.low) | (array > most)
            if wrong.any():
                place = np.unravel_index(int(wrong.argmax()), array.shape)
                index = "".join(f"[{int(n)}]" for n in place)
                raise ValueError(
                    f"{where}: {limit.input!r}{index} is {array[place]}, and the {limit.of} has "
                    f"{limit.size} entries, {limit.expected({})}"
                )

    def check(self, where: str, inputs: Mapping[str, Array]) -> None:
        """Refuse inputs whose names, dtypes or shapes are not the model's.

        Raises:
            ValueError: an unknown or missing name, or a shape.
            TypeError: a dtype.
        """
        for name, array in inputs.items():
            self.check_input(where, name, array)
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise ValueError(
                f"{where}: input {missing[0]!r} is missing; it is {self.inputs[missing[0]]}"
            )

    def check_input(self, where: str, name: str, array: Array) -> None:
        """As ``check``, of one input."""
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
                + self._how_to_follow(name)
            )

    def _how_to_follow(self, name: str) -> str:
        """What to write in a body whose rows are bounded behind an input, and not the input's."""
        bounds = [rows for axes in self.bounds.values() for rows in axes.values()]
        rows = next((value for bound in bounds for value in bound.names()), None)
        if rows is None or self.bounds.get(name) or not self.inputs[name].dims:
            return ""
        return (
            f"; the graph bounds no axis of it by {rows!r}. For a prompt of any length bound the "
            f"input itself and not what is computed of it: {name} = {name}[:{rows}], then "
            f"F.embedding({name}, table) say"
        )

    def call(self, inputs: Mapping[str, Array], states: States) -> dict[str, Array]:
        """Run once, with checked inputs. The states move on; the results are the caller's own."""
        kept = []
        if self._made is None:
            self._made = self._bind_outputs()
        for name, array in inputs.items():
            spec = self.inputs[name].spec()
            if spec is not None and name not in self._given:
                self._given[name] = aligned(spec, f"input {name!r}")
                _bind(self._binding.bind_input, name, self._given[name])
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
            results.update(self._open_outputs(results))
        return {name: results[name] for name in self.outputs}

    def _bind_outputs(self) -> dict[str, Array]:
        """A buffer for every output whose shape is known, bound for good."""
        buffers = {}
        for name, port in self.outputs.items():
            spec = port.spec()
            if spec is None:
                self._binding.bind_output(name, "cpu")
            else:
                buffers[name] = aligned(spec, f"output {name!r}")
                _bind(self._binding.bind_output, name, buffers[name])
        return buffers

    def _open_outputs(self, made: Mapping[str, Array]) -> dict[str, Array]:
        """Copies of the outputs that have no buffer of ours."""
        names = [item.name for item in self.session.get_outputs()]
        values = dict(zip(names, self._binding.get_outputs(), strict=True))
        results = {}
        for name, port in self.outputs.items():
            if name not in made:
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
    dims = tuple(dim if isinstance(dim, int) and dim >= 0 else None for dim in item.shape)
    return Port(item.name, TYPES[item.type], dims)


def _number(metadata: Mapping[str, str], key: str, where: str) -> int | None:
    text = metadata.get(key, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        what = "rows" if key == CONTEXT else "sequences"
        raise unreadable(where, key, f"{text[:40]!r}, expected a number of {what}")
    return int(text)


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
