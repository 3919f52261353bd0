"""Graphs for tests: made from a function, run on numpy or exported to stock onnxruntime."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import onnx
import onnxruntime

from onnx_iron import Graph, export
from onnx_iron.dtypes import Array
from onnx_iron.graph import Trace


class Network(Graph):
    """A graph whose body is a function of it, its inputs and its per-call values."""

    def __init__(self, body: Callable[..., Any], **parts: Any) -> None:
        self.__dict__.update(parts)
        self.body = MethodType(body, self)  # type: ignore[method-assign]


def traced(body: Callable[..., Any], shape: tuple[int, ...] = (4, 8), **parts: Any) -> Trace:
    """The trace of a body of one float32 input x."""
    return Network(body, **parts).trace(x=(shape, np.float32))


def recorded(trace: Trace) -> list[str]:
    """The steps of a trace by their operators."""
    return [step.op.name for step in trace.steps]


def random(*shape: int, dtype: Any = np.float32, seed: int = 0, scale: float = 1.0) -> Array:
    """Normal numbers, the same for one seed."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def numbered(*shape: int) -> Array:
    """Distinct float32 numbers, so that no two elements can be mistaken for each other."""
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


class Exported:
    """A trace as onnxruntime runs it, stock where not said otherwise, its states kept from call to
    call.

    Attributes:
        model: the model, checked in full by onnx.
        states: the states by name.
    """

    def __init__(
        self,
        trace: Trace,
        opened: Callable[[onnx.ModelProto], onnxruntime.InferenceSession] | None = None,
        **options: Any,
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(trace, path, **options)
            onnx.checker.check_model(str(path), full_check=True)
            self.model = onnx.load(path)
            self.session = session(path) if opened is None else opened(self.model)
        described = {entry.key: entry.value for entry in self.model.metadata_props}
        self.described = json.loads(described["onnx_iron.states"])
        self.states = {s["name"]: np.zeros(s["shape"], s["dtype"]) for s in self.described}

    def __call__(self, **feeds: Any) -> dict[str, Array]:
        """Run with inputs and per-call values by name; those that the model has no use for are
        left out.
        """
        wanted = {i.name for i in self.session.get_inputs()}
        given = {name: np.asarray(x) for name, x in feeds.items() if name in wanted}
        given |= {
            name: array.astype(np.int32)
            for name, array in given.items()
            if array.ndim == 0 and array.dtype == np.int64
        }
        given |= {f"past.{name}": array for name, array in self.states.items()}
        names = [o.name for o in self.session.get_outputs()]
        results = dict(zip(names, self.session.run(None, given), strict=True))
        for state in self.described:
            if state["output"]:
                self.states[state["name"]] = results.pop(state["output"])
        return results


def session(model: Path | onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session on onnxruntime's own CPU provider, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
