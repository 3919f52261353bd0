"""A model with memory: states kept between calls, prompts cut into chunks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onnx_iron.dtypes import Array
from onnx_iron.provider.chunks import (
    arrays_of,
    as_given,
    check_joinable,
    check_whole,
    chunks,
    cut,
    dims_of,
    fits_padded,
    joined,
    leading,
    one_row_inputs,
    row_count,
    same_outputs,
)
from onnx_iron.provider.devices import DEVICES
from onnx_iron.provider.model import Model
from onnx_iron.provider.opening import load_models, open_session
from onnx_iron.provider.placement import Placement, placement
from onnx_iron.provider.states import Memory, States, merged
from onnx_iron.provider.turns import in_turn
from onnx_iron.provider.weights import check_together

POSITION = "position"
PROVIDERS = ("iron", "stock")
# The models whose calls move the position on, whether they take it or not.
ROLES = ("prefill", "decode", "model")


class Session:
    """Runs an exported model whose states it keeps.

    A state starts as zeros and is updated in place by every call. The per-call value ``position``
    is filled in with the number of rows run since ``reset``; the value that says how many rows of
    a chunk are valid is filled in too. Calls from several threads take turns. When a call fails,
    states may have been written in part: ``reset`` or ``restore`` before going on.

    A per-call value that the model's operators do not allow, such as a position past a cache, is
    refused before anything runs, on both providers. Plain ``onnxruntime.InferenceSession`` with the
    CPU provider does not notice it: what would be written past a cache is left out, and what would
    be read past it repeats the last entry.

    Args:
        path: an .onnx file, or a folder of them which share their states: ``prefill.onnx`` (a chunk
            of rows at a time), ``decode.onnx`` (one row), and others, for ``call``.
        provider: "iron", or "stock" for onnxruntime's own CPU kernels.
        device: the provider's option of that name: "auto", "cpu" or "npu".
        provider_options: further options of IronExecutionProvider.
        session_options: onnxruntime's, as they are; without them, placement is recorded.

    Raises:
        FileNotFoundError: the model, or its weights file, is not there.
        ValueError: an unknown provider or option, a weights file that is cut short, or a model
            whose metadata does not fit it.
        Exception: onnxruntime's own, where it can't load the model for another reason.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        provider: str = "iron",
        device: str = "auto",
        provider_options: Mapping[str, str] | None = None,
        session_options: onnxruntime.SessionOptions | None = None,
    ) -> None:
        if provider not in PROVIDERS:
            raise ValueError(f"Session: provider is {provider!r}, expected 'iron' or 'stock'")
        options = {"device": device, **(provider_options or {})}
        found = load_models(Path(path))
        check_together(dict(found.values()))
        self._models = {
            role: Model(file, open_session(file, provider, options, session_options, loaded))
            for role, (file, loaded) in found.items()
        }
        self._position = 0
        self._lock = threading.RLock()
        # Where nodes run matters on our provider alone; plain onnxruntime may have no record of it.
        reports: list[Placement] = []
        # Where it isn't known, a buffer of its own for each state is always right.
        with contextlib.suppress(LookupError):
            reports = list(self.placement().values()) if provider == "iron" else []
        # Only our own kernels may write a state over itself, and only within one node of theirs.
        self._in_place = bool(reports) and all(report.complete for report in reports)
        states = merged({m.path: m.states for m in self._models.values()})
        self._use(States(states, _memory(reports)))

    # -- calls ------------------------------------------------------------------------------

    def __call__(self, **inputs: Any) -> dict[str, Array]:
        """As ``run``, with the inputs by keyword."""
        return self.run(inputs)

    @in_turn
    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """One call with the shapes of a model: of two, the one that they fit.

        Fewer rows than a model's are padded with zeros, and its outputs cut to them, where the
        value that says how many are valid is left out.

        Args:
            inputs: arrays by input name; per-call values may be left out.

        Returns:
            The outputs by name, without the states.

        Raises:
            ValueError: names or shapes that are not the model's.
            TypeError: dtypes that are not the model's.
        """
        return self._call("Session.run()", self._fitting(inputs), inputs)

    @in_turn
    def decode(self, /, **inputs: Any) -> dict[str, Array]:
        """One call of the decode model; otherwise as ``run``."""
        where = "Session.decode()"
        return self._call(where, self._role("decode", where), inputs)

    @in_turn
    def call(self, role: str, /, **inputs: Any) -> dict[str, Array]:
        """One call of the model of a role: the file's name in the folder; otherwise as ``run``."""
        where = f"Session.call({role!r})"
        if role not in self._models:
            raise ValueError(f"{where}: unknown role, expected one of {list(self._models)}")
        return self._call(where, self._models[role], inputs)

    @in_turn
    def prefill(self, /, **inputs: Any) -> dict[str, Array]:
        """Any number of rows, in chunks of the prefill model's length.

        Args:
            inputs: arrays by input name; those with rows all have the same number of them, at
                least one. The last chunk is padded with zeros. A single row left over goes through
                the decode model where there is one.

        Returns:
            The outputs of the last chunk; of an output that follows the rows along one axis, the
            valid entries of all chunks.

        Raises:
            ValueError: names or shapes that are not the model's, no rows, a value out of its range
                in any chunk, or an older export that doesn't say which outputs follow the rows.
            TypeError: dtypes that are not the model's.
        """
        where = "Session.prefill()"
        return self._chunked(where, self._role("prefill", where), inputs)

    # -- states -----------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Rows run since the last reset."""
        return self._position

    @property
    def context(self) -> int | None:
        """The rows that the states have room for, where the models say it."""
        return next((m.context for m in self._models.values() if m.context is not None), None)

    @property
    def batch(self) -> int | None:
        """The sequences that each call runs, all at one position, where the models say it."""
        return next((m.batch for m in self._models.values() if m.batch is not None), None)

    @in_turn
    def rewind(self, rows: int) -> None:
        """Take back the last ``rows`` rows, as if they had not been run.

        Raises:
            ValueError: fewer rows were run, or a state of the model isn't a cache by position, such
                as what a convolution carries: what it held before is gone. ``fork`` or ``save``
                keep it.
        """
        if not 0 <= rows <= self._position:
            raise ValueError(
                f"Session.rewind(): rows is {rows}, expected 0..{self._position}, those run so far"
            )
        for model in self._models.values():
            for state in model.states.values():
                if rows and not state.by_position:
                    raise ValueError(
                        f"Session.rewind(): the state {state.name!r} keeps no entry for each "
                        "position, so what it held before is gone; reset, or fork() or save() "
                        "before what may be taken back"
                    )
        self._position -= rows

    @in_turn
    def fork(self) -> Session:
        """Another session that goes on from here by itself: a copy of the states, and the same
        models, weights and all. The two may be called from different threads.
        """
        other = object.__new__(Session)
        other._models = {role: model.shared() for role, model in self._models.items()}
        other._position = self._position
        other._lock = threading.RLock()
        other._in_place = self._in_place
        other._use(self._states.copied())
        return other

    @in_turn
    def reset(self) -> None:
        """Zero the states and the position."""
        self._states.reset()
        self._position = 0

    @property
    def states(self) -> list[str]:
        """The states' names."""
        return list(self._states.specs)

    @in_turn
    def state(self, name: str) -> Array:
        """A copy of a state.

        Raises:
            KeyError: no such state.
        """
        if name not in self._states.specs:
            raise KeyError(f"unknown state {name!r}, expected one of {self.states}")
        return self._states.fetch(name).copy()

    @in_turn
    def save(self, path: str | Path) -> None:
        """Write the states and the position to a file."""
        self._states.save(Path(path), self._position)

    @in_turn
    def restore(self, path: str | Path) -> None:
        """Go on from what ``save`` wrote.

        Raises:
            ValueError: the file's states are not this model's, by name.
        """
        self._position = self._states.restore(Path(path))

    def placement(self) -> dict[str, Placement]:
        """Where each model's nodes run, by the model's role."""
        return {role: placement(model.session) for role, model in self._models.items()}

    # -- inside -----------------------------------------------------------------------------

    def _use(self, states: States) -> None:
        self._states = states
        for model in self._models.values():
            model.bind_states(states, self._in_place)

    @property
    def _main(self) -> Model:
        return next(iter(self._models.values()))

    def _fitting(self, inputs: Mapping[str, Any]) -> Model:
        given = {n: as_given("Session.run()", n, a).shape for n, a in inputs.items()}
        for model in self._models.values():
            known = {n: shape for n, shape in given.items() if n in model.inputs}
            if all(model.inputs[n].fits(shape) or n in model.values for n, shape in known.items()):
                return model
        return self._main

    def _role(self, role: str, where: str) -> Model:
        """The model of a role, or the only one there is."""
        if role in self._models:
            return self._models[role]
        others = [name for name in self._models if name not in ROLES]
        if len(others) > 1 or (others and len(self._models) > 1):
            raise ValueError(
                f"{where}: there is no {role}.onnx, only {list(self._models)}; use "
                f"Session.call({others[0]!r}, ...)"
            )
        return self._main

    def _for_rest(self, prefill: Model) -> Model:
        """The model for a single row that is left over."""
        decode = self._models.get("decode", prefill)
        fits = one_row_inputs(prefill, decode) and same_outputs(prefill, decode)
        return decode if fits else prefill

    def _row_inputs(self, model: Model) -> dict[str, int]:
        """The inputs that have an entry for each row, and its axis: as another model has them, of a
        graph whose rows are bounded in its body where there are several.
        """
        found = model.row_inputs()
        for other in self._models.values() if model.rows_value is None else ():
            if other.rows_value is not None:
                found |= {n: axis for n, axis in other.row_inputs().items() if n in found}
        return found

    def _call(self, where: str, model: Model, inputs: Mapping[str, Any]) -> dict[str, Array]:
        arrays = arrays_of(where, model, inputs)
        value = model.rows_value
        row_inputs = self._row_inputs(model)
        axis = next(iter(row_inputs.values()), 0)
        count = leading([arrays[name] for name in row_inputs if name in arrays], axis)
        if value is not None and value not in arrays and fits_padded(model, arrays):
            return self._chunked(where, model, inputs)
        if value is not None and value not in arrays:
            arrays[value] = self._scalar(where, model, value, count)
        if POSITION in model.inputs and POSITION not in arrays:
            arrays[POSITION] = self._scalar(where, model, POSITION, self._position)
        begin = self._position
        arrays = self._prepared(where, model, arrays)
        if POSITION in arrays:
            begin = int(arrays[POSITION].reshape(()))
        rows = count if value is None else int(arrays[value].reshape(()))
        counts = POSITION in model.inputs or any(self._models.get(r) is model for r in ROLES)
        if counts:
            self._check_room(where, model, begin, rows)
        results = model.call(arrays, self._states)
        if counts:
            self._position = begin + rows
        return results

    def _chunked(self, where: str, model: Model, inputs: Mapping[str, Any]) -> dict[str, Array]:
        value = model.rows_value
        if value is None:
            return self._call(where, model, inputs)
        if value in inputs:
            raise ValueError(f"{where}: {value!r} is filled in for each chunk; leave it out")
        arrays = arrays_of(where, model, inputs)
        row_inputs = model.row_inputs()
        count = row_count(model, arrays, row_inputs)
        name, axis = next(iter(row_inputs.items()))
        length = model.inputs[name].dims[axis] or count
        check_joinable(where, model, length, count)
        check_whole(where, model, length, count)
        begins_at = self._position
        if POSITION in arrays:
            model.check_input(where, POSITION, arrays[POSITION])
            begins_at = int(arrays.pop(POSITION).reshape(()))
        self._check_room(where, model, begins_at, count)
        parts = chunks(model, self._for_rest(model), length, count)
        # All chunks are looked at before the first one runs and writes.
        prepared = []
        for part, given in zip(parts, cut(where, model, parts, arrays), strict=True):
            if POSITION in part.model.inputs:
                given[POSITION] = self._scalar(where, part.model, POSITION, begins_at + part.begin)
            if part.model is model:
                given[value] = self._scalar(where, model, value, part.rows)
            given = {n: array for n, array in given.items() if n in part.model.inputs}
            prepared.append(self._prepared(where, part.model, given))
        results = []
        for part, given in zip(parts, prepared, strict=True):
            results.append(part.model.call(given, self._states))
            self._position = begins_at + part.begin + part.rows
        return joined(parts, results, model)

    @staticmethod
    def _prepared(where: str, model: Model, arrays: dict[str, Array]) -> dict[str, Array]:
        """A call's inputs, all there and all in their ranges."""
        model.check(where, arrays)
        model.check_limits(where, {name: int(arrays[name].reshape(())) for name in model.values})
        model.check_elements(where, arrays)
        return arrays

    @staticmethod
    def _scalar(where: str, model: Model, name: str, number: int) -> Array:
        """A per-call value as the model takes it."""
        port = model.inputs[name]
        if number > np.iinfo(port.dtype).max:
            raise ValueError(f"{where}: {name!r} is {number}, which {port.dtype.name} can't hold")
        return np.array(number, port.dtype).reshape(dims_of(model, name))

    @staticmethod
    def _check_room(where: str, model: Model, begin: int, rows: int) -> None:
        if model.context is not None and begin + rows > model.context:
            raise ValueError(
                f"{where}: {rows} rows at position {begin} go past the model's context of "
                f"{model.context}"
            )


def _memory(reports: Iterable[Placement]) -> Memory:
    """The memory of the device that runs a part of a model, where one does beside the CPU."""
    used = {row.device for report in reports for row in report.rows} & (DEVICES.keys() - {"cpu"})
    return DEVICES[min(used, default="cpu")].memory()
