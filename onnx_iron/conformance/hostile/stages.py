"""What is done with a hostile case: it is run on plain onnxruntime, then by each way of ours."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import resource
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from onnx_iron.conformance.hostile.case import MODEL
from onnx_iron.dtypes import DTYPES, Array, Spec
from onnx_iron.operators import DOMAIN
from onnx_iron.provider import Session, get_ep_name, get_library_path, placement, register

CPU = "CPUExecutionProvider"
_RECORD = "session.record_ep_graph_assignment_info"


@dataclass
class Attempt:
    """What became of a case in a stage.

    Attributes:
        opened: a session was made; what was raised came from the call.
        results: by name; None where something was raised.
        error: what was raised, by its class.
        text: its text.
        megabytes: by how much the process grew at the most.
        unexamined: nodes of which the planner found out nothing but an exception of its own.
        in_place: the results with states updated in their own buffers, where there are any.
    """

    opened: bool = False
    results: dict[str, Array] | None = None
    error: str = ""
    text: str = ""
    megabytes: float = 0.0
    unexamined: list[str] = field(default_factory=list)
    in_place: dict[str, Array] | None = None


@dataclass(frozen=True)
class Given:
    """A case as a stage takes it: a folder with the model, and the call's tensors."""

    folder: Path
    feeds: Mapping[str, Array]

    @property
    def model(self) -> Path:
        """The model's file."""
        return self.folder / MODEL


Stage = Callable[[Given, Attempt], None]
STAGES: dict[str, Stage] = {}


def stage(name: str) -> Callable[[Stage], Stage]:
    """Enter a stage under the name that reports show."""

    def enter(function: Stage) -> Stage:
        STAGES[name] = function
        return function

    return enter


def attempt(name: str, given: Given) -> Attempt:
    """Try a stage: whatever Python can catch is told."""
    made = Attempt()
    before = _peak()
    with _planners_log(made.unexamined):
        try:
            STAGES[name](given, made)
        except Exception as error:
            kind = type(error)
            made.results = None
            made.error, made.text = f"{kind.__module__}.{kind.__name__}", str(error) or _no_text()
    made.megabytes = (_peak() - before) / 1024
    return made


@cache
def _no_text() -> str:
    """What is said of an error without text. Python 3.11.2, Debian 12's, drops one that C++ gives
    it and that is no UTF-8; later ones say so by an error of their own.
    """
    tell = ctypes.pythonapi.PyErr_SetString
    tell.argtypes, tell.restype = (ctypes.py_object, ctypes.c_char_p), None
    try:
        tell(ValueError, b"\xff")
    except ValueError as error:
        return "" if str(error) else "a text that is no UTF-8, which this Python drops"
    return ""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def _planners_log(unexamined: list[str]) -> Iterator[None]:
    """Collect what the planner says of nodes at which it failed."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "could not be examined" in record.getMessage() and record.exc_info:
                unexamined.append(f"{record.getMessage()}: {record.exc_info[1]!r}")

    log, handler = logging.getLogger("onnx_iron"), Collect()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@stage("stock")
def stock(given: Given, made: Attempt) -> None:
    """Plain onnxruntime: what a case means, where it takes it."""
    session = onnxruntime.InferenceSession(str(given.model), _options(), providers=[CPU])
    made.opened = True
    made.results = _called(session, given)


@stage("provider")
def provider(given: Given, made: Attempt) -> None:
    """Our provider in a plain InferenceSession; states apart, then in place, which only a model
    that is one node of ours allows.
    """
    register()
    options = _options()
    options.add_session_config_entry(_RECORD, "1")
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == get_ep_name()]
    options.add_provider_for_devices(devices[:1], {"device": "cpu"})
    session = onnxruntime.InferenceSession(str(given.model), options)
    made.opened = True
    made.results = _called(session, given)
    if len(session.get_provider_graph_assignment_info()) == 1 and placement(session).complete:
        made.in_place = _called_in_place(session, given)


@stage("session")
def session(given: Given, made: Attempt) -> None:
    """onnx_iron.Session, whose states begin with zeros."""
    options = _options()
    options.add_session_config_entry(_RECORD, "1")
    opened = Session(given.model, device="cpu", session_options=options)
    made.opened = True
    made.results = opened.run({n: a for n, a in given.feeds.items() if not n.startswith("past.")})


@stage("custom ops")
def custom_ops(given: Given, made: Attempt) -> None:
    """Our kernels as custom ops; without the function bodies, which would be taken first."""
    model = onnx.load(given.model, load_external_data=False)
    if not any(node.domain == DOMAIN for node in model.graph.node):
        return
    del model.functions[:]
    bare = given.folder / "custom_ops.onnx"
    bare.write_bytes(model.SerializeToString())
    options = _options()
    options.register_custom_ops_library(get_library_path())
    opened = onnxruntime.InferenceSession(str(bare), options, providers=[CPU])
    made.opened = True
    made.results = _called(opened, given)


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _called(session: onnxruntime.InferenceSession, given: Given) -> dict[str, Array]:
    ports = (*session.get_inputs(), *session.get_outputs())
    names = [port.name for port in session.get_outputs()]
    if any(port.type == "tensor(bfloat16)" for port in ports):
        return _bound(session, given, {})
    return dict(zip(names, session.run(None, dict(given.feeds)), strict=True))


def _called_in_place(
    session: onnxruntime.InferenceSession, given: Given
) -> dict[str, Array] | None:
    types = {port.name: (port.type, port.shape) for port in session.get_inputs()}
    shared = {}
    for port in session.get_outputs():
        past = "past." + port.name.removeprefix("present.")
        if port.name != past and types.get(past) == (port.type, port.shape):
            shared[port.name] = past
    return _bound(session, given, shared) if shared else None


def _bound(
    session: onnxruntime.InferenceSession, given: Given, shared: Mapping[str, str]
) -> dict[str, Array]:
    """A call by IOBinding, for what ``run`` does not take; some outputs over their inputs."""
    values = {name: _value(array) for name, array in given.feeds.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    names = list(dict.fromkeys(port.name for port in session.get_outputs()))
    for name in names:
        if name in shared:
            binding.bind_ortvalue_output(name, values[shared[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    return {n: _array(v) for n, v in zip(names, binding.get_outputs(), strict=True)}


def _value(array: Array) -> onnxruntime.OrtValue:
    array = np.array(array, order="C")  # a copy: a state is written over
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, number)


def _array(value: onnxruntime.OrtValue) -> Array:
    if not value.is_tensor() or value.element_type() not in DTYPES:
        return np.asarray(value.numpy())
    spec = Spec(tuple(value.shape()), DTYPES[value.element_type()])
    raw = ctypes.string_at(value.data_ptr(), spec.bytes) if spec.bytes else b""
    return np.frombuffer(raw, spec.dtype).reshape(spec.shape).copy()


def names() -> list[str]:
    """The stages in order; the first is what the others are compared with."""
    return list(STAGES)
