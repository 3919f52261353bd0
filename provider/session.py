"""A model with memory: states kept between calls, prompts cut into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onnx_iron.provider.chunks import dims_of, fitted, joined, leading, padded, row_count
from onnx_iron.provider.devices import DEVICES
from onnx_iron.provider.model import Model, unknown
from onnx_iron.provider.opening import model_files, open_session
from onnx_iron.provider.placement import Placement, placement
from onnx_iron.provider.specs import Array
from onnx_iron.provider.states import Memory, States, merged

POSITION = "position"
PROVIDERS = ("iron", "stock")


class Session:
    """Runs an exported model whose states it keeps.

    A state starts as zeros and is updated in place by every call. The per-call value ``position``
    is filled in with the number of rows run since ``reset``; the value that says how many rows of
    a chunk are valid is filled in too. Not for several threads at once. When a call fails, states
    may have been written in part: ``reset`` or ``restore`` before going on.

    Args:
        path: an .onnx file, or a folder with ``prefill.onnx`` (a chunk of rows at a time) and
            ``decode.onnx`` (one row), which share their states.
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
        self._models = {
            role: Model(file, open_session(file, provider, options, session_options))
            for role, file in model_files(Path(path)).items()
        }
        self._position = 0
        # Where nodes run matters on our provider alone; plain onnxruntime may have no record of it.
        reports = self.placement().values() if provider == "iron" else ()
        # Only our own kernels may write a state over itself, and only within one node of theirs.
        in_place = provider == "iron" and all(report.complete for report in reports)
        states = merged({m.path: m.states for m in self._models.values()})
        self._states = States(states, _memory(reports))
        for model in self._models.values():
            model.bind_states(self._states, in_place)

    # -- calls ------------------------------------------------------------------------------

    def __call__(self, **inputs: Any) -> dict[str, Array]:
        """As ``run``, with the inputs by keyword."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """One call with the shapes of a model: of two, the one that they fit.

        Args:
            inputs: arrays by input name; per-call values may be left out.

        Returns:
            The outputs by name, without the states.

        Raises:
            ValueError: names or shapes that are not the model's.
            TypeError: dtypes that are not the model's.
        """
        return self._call("Session.run()", self._fitting(inputs), inputs)

    def decode(self, **inputs: Any) -> dict[str, Array]:
        """One call of the decode model; otherwise as ``run``."""
        model = self._models.get("decode", self._main)
        return self._call("Session.decode()", model, inputs)

    def prefill(self, **inputs: Any) -> dict[str, Array]:
        """Any number of rows, in chunks of the prefill model's length.

        Args:
            inputs: arrays by input name; those with rows all have the same number of them, at
                least one. The last chunk is padded with zeros. A single row left over goes through
                the decode model where there is one.

        Returns:
            The outputs of the last chunk; of an output that has a row for each row of the chunk,
            the valid rows of all chunks.

        Raises:
            ValueError: names or shapes that are not the model's, or no rows.
            TypeError: dtypes that are not the model's.
        """
        where = "Session.prefill()"
        model = self._models.get("prefill", self._main)
        rows_value = model.rows_value()
        if rows_value is None:
            return self._call(where, model, inputs)
        if rows_value in inputs:
            raise ValueError(f"{where}: {rows_value!r} is filled in for each chunk; leave it out")
        arrays = self._arrays(where, model, inputs)
        row_inputs = model.row_inputs()
        count = row_count(arrays, row_inputs)
        length = model.inputs[row_inputs[0]].dims[0] or count
        begins_at = arrays.pop(POSITION, None)
        if begins_at is not None:
            self._position = int(begins_at.reshape(()))
        self._check_room(where, model, self._position, count)
        parts: list[tuple[Model, int, dict[str, Array]]] = []
        for begin in range(0, count, length):
            rows = min(length, count - begin)
            chosen = self._for_rest(model) if rows == 1 else model
            size = length if chosen is model else 1
            chunk = {
                name: padded(array[begin : begin + rows], size) if name in row_inputs else array
                for name, array in arrays.items()
            }
            if chosen is model:
                chunk[rows_value] = np.array(rows, np.int32).reshape(dims_of(model, rows_value))
            else:
                chunk.pop(rows_value, None)
            parts.append((chosen, rows, self._call(where, chosen, chunk)))
        return joined(parts, model, length)

    # -- states -----------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Rows run since the last reset."""
        return self._position

    def reset(self) -> None:
        """Zero the states and the position."""
        self._states.reset()
        self._position = 0

    @property
    def states(self) -> list[str]:
        """The states' names."""
        return list(self._states.specs)

    def state(self, name: str) -> Array:
        """A copy of a state.

        Raises:
            KeyError: no such state.
        """
        if name not in self._states.specs:
            raise KeyError(f"unknown state {name!r}, expected one of {self.states}")
        return self._states.fetch(name).copy()

    def save(self, path: str | Path) -> None:
        """Write the states and the position to a file."""
        self._states.save(Path(path), self._position)

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

    @property
    def _main(self) -> Model:
        return next(iter(self._models.values()))

    def _fitting(self, inputs: Mapping[str, Any]) -> Model:
        for model in self._models.values():
            known = {n: np.shape(a) for n, a in inputs.items() if n in model.inputs}
            if all(model.inputs[n].fits(shape) or n in model.bounds for n, shape in known.items()):
                return model
        return self._main

    def _for_rest(self, prefill: Model) -> Model:
        """The model for a single row that is left over."""
        decode = self._models.get("decode", prefill)
        inputs = decode.inputs.keys() <= prefill.inputs.keys()
        outputs = {name: len(port.dims) for name, port in decode.outputs.items()}
        same = outputs == {name: len(port.dims) for name, port in prefill.outputs.items()}
        return decode if inputs and same else prefill

    def _call(self, where: str, model: Model, inputs: Mapping[str, Any]) -> dict[str, Array]:
        arrays = self._arrays(where, model, inputs)
        rows_value = model.rows_value()
        count = leading([arrays[name] for name in model.row_inputs() if name in arrays])
        if rows_value is not None and rows_value not in arrays:
            arrays[rows_value] = np.array(count, np.int32).reshape(dims_of(model, rows_value))
        if POSITION in model.inputs and POSITION not in arrays:
            arrays[POSITION] = np.array(self._position, np.int32).reshape(dims_of(model, POSITION))
        model.check(where, arrays)
        begin = int(arrays[POSITION].reshape(())) if POSITION in arrays else self._position
        rows = count if rows_value is None else int(arrays[rows_value].reshape(()))
        self._check_room(where, model, begin, rows)
        results = model.call(arrays, self._states)
        self._position = begin + rows
        return results

    @staticmethod
    def _check_room(where: str, model: Model, begin: int, rows: int) -> None:
        if model.context is not None and begin + rows > model.context:
            raise ValueError(
                f"{where}: {rows} rows at position {begin} go past the model's context of "
                f"{model.context}"
            )

    @staticmethod
    def _arrays(where: str, model: Model, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The inputs as arrays; numbers and lists take the model's dtype."""
        arrays = {}
        for name, value in inputs.items():
            port = model.inputs.get(name)
            if port is None:
                raise ValueError(f"{where}: {unknown(name, list(model.inputs))}")
            array = np.asarray(value)
            scalar = name in model.bounds and array.size == 1
            if scalar or not isinstance(value, np.ndarray | np.generic):
                array = fitted(array, port.dtype)
            arrays[name] = array.reshape(dims_of(model, name)) if scalar else array
        return arrays


def _memory(reports: Iterable[Placement]) -> Memory:
    """The memory of the device that runs a part of a model, where one does beside the CPU."""
    used = {row.device for report in reports for row in report.rows} & (DEVICES.keys() - {"cpu"})
    return DEVICES[min(used, default="cpu")].memory()
