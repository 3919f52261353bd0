"""Implementations that are an onnxruntime session: stock, ours, and anybody's."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.base import Declined, Difference, Inapplicable, Results
from onnx_iron.conformance.implementations.exported import (
    Exported,
    bind,
    exported,
    poisoned,
    read_states,
)
from onnx_iron.conformance.implementations.known import ACTIVATIONS, MASKED

CPU = "CPUExecutionProvider"
_VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
_OVERLOADS_SINCE = (1, 27)
_PLUG_INS = hasattr(onnxruntime, "get_ep_devices")
RECORD = "session.record_ep_graph_assignment_info"


@dataclass(frozen=True)
class SessionImplementation:
    """A session of onnxruntime with some provider, on one thread.

    Attributes:
        name: the report's column.
        provider: its name in onnxruntime.
        options: the provider's.
        dialect: "iron" for our operators with their function bodies, "standard" for onnx's own.
        library: a plug-in provider's library, which is registered first.
        in_place: which states are updated in their own buffers: none of them, all, or every other.
        bodies: keep the function bodies; without them only a runtime that has the operators runs.
        custom_ops: gives the path of a library of custom ops.
        prepare: called before each session.
        arguments: what selects it on the command line, where its name does not.
        differences: what the provider is known to do otherwise.
    """

    name: str
    provider: str = CPU
    options: Mapping[str, str] = field(default_factory=dict)
    dialect: str = "iron"
    library: Path | None = None
    in_place: str = "none"
    bodies: bool = True
    custom_ops: Callable[[], str] | None = None
    prepare: Callable[[], None] | None = None
    arguments: str = ""
    differences: Sequence[Difference] = ()

    def run(self, case: Case) -> Results:
        model = exported(case, self.dialect)
        if self.in_place == "all" and not model.updated:
            raise Inapplicable("it has no state that could be updated in place")
        if self.in_place == "mixed" and len(model.updated) < 2:
            raise Inapplicable("it has no two states, one to be updated in place and one apart")
        if not self.bodies:
            model = dataclasses.replace(model, model=_without_functions(model.model))
        try:
            session = self.open(model.model)
        except Declined:
            raise
        except Exception as error:  # onnxruntime's have no common base
            if re.search("Unsupported model IR version|official released onnx opset", str(error)):
                version = onnxruntime.__version__
                raise Declined(f"onnxruntime {version} is older than the model's format") from error
            several = _several_bodies(model.model)
            if not several or _VERSION >= _OVERLOADS_SINCE:
                raise
            # Whatever else is wrong with the file, is so with a name of its own for each body.
            self.open(_with_a_name_a_body(model.model))
            raise Declined(
                "before 1.27 onnxruntime knows one function body an operator; this file has more "
                f"of {several[0]}"
            ) from error
        return _run(case, model, session, self.in_place)

    def open(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        """A session of a model.

        Raises:
            Declined: the provider takes none of its nodes.
        """
        session = self._session(model)
        if self.provider != CPU:
            _claimed(session, self.provider, model)
        return session

    def _session(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        if self.provider != CPU and not _PLUG_INS:
            version = onnxruntime.__version__
            raise Declined(f"onnxruntime {version} takes no plug-in providers; 1.24 and newer do")
        if self.prepare is not None:
            self.prepare()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry(RECORD, "1")
        if self.custom_ops is not None:
            options.register_custom_ops_library(self.custom_ops())
        source = model.SerializeToString()
        if self.provider == CPU:
            return onnxruntime.InferenceSession(source, options, providers=[CPU])
        if self.library is not None and self.provider not in _plugged_in():
            onnxruntime.register_execution_provider_library(self.name, str(self.library.resolve()))
        devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == self.provider]
        if devices:
            options.add_provider_for_devices(devices[:1], dict(self.options))
            return onnxruntime.InferenceSession(source, options)
        return onnxruntime.InferenceSession(
            source, options, providers=[(self.provider, dict(self.options)), CPU]
        )


def _several_bodies(model: onnx.ModelProto) -> list[str]:
    """The operators that a model has function bodies of several forms of."""
    counted = Counter(function.name for function in model.functions)
    return [name for name, count in counted.items() if count > 1]


def _with_a_name_a_body(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose functions' overloads are part of their names."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    calls = [*named.graph.node, *(node for function in named.functions for node in function.node)]
    for node in calls:
        if node.overload:
            node.op_type, node.overload = f"{node.op_type}_{node.overload}", ""
    for function in named.functions:
        if function.overload:
            function.name, function.overload = f"{function.name}_{function.overload}", ""
    return named


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.functions[:]
    return bare


def _plugged_in() -> set[str]:
    return {device.ep_name for device in onnxruntime.get_ep_devices()} if _PLUG_INS else set()


def _claimed(session: onnxruntime.InferenceSession, provider: str, model: onnx.ModelProto) -> None:
    """Make sure that the provider runs something of the model.

    Raises:
        Declined: it left every node to onnxruntime.
    """
    if not model.graph.node:
        return
    assigned = session.get_provider_graph_assignment_info()
    if not any(subgraph.ep_name == provider for subgraph in assigned):
        raise Declined(f"{provider} takes none of its nodes")


def _run(
    case: Case, model: Exported, session: onnxruntime.InferenceSession, in_place: str
) -> Results:
    kept = model.empty_states()
    given = {i.name for i in session.get_inputs()}
    results = []
    for call in case.calls:
        arrays = {n: np.asarray(a, order="C") for n, a in model.feeds(call).items()} | kept
        outputs = {name: poisoned(*spec) for name, spec in model.outputs.items()}
        for number, (past, present) in enumerate(model.updated.items()):
            if in_place == "all" or (in_place == "mixed" and number % 2 == 0):
                # Of an operator alone the state is an input like others: the case's own stays.
                arrays[past] = kept[past] if past in kept else arrays[past].copy()
                outputs[present] = arrays[past]
        binding = session.io_binding()
        for name in arrays.keys() & given:
            bind(binding, "input", name, arrays[name])
        for name, array in outputs.items():
            bind(binding, "output", name, array)
        session.run_with_iobinding(binding)
        kept |= {past: outputs[p] for past, p in model.states.items() if p is not None}
        made = {**read_states(kept), **outputs}
        results.append({name: array.copy() for name, array in made.items()})
    return results


def stock() -> Sequence[SessionImplementation]:
    """Plain onnxruntime of this environment: our function bodies, and standard operators."""
    version, known = onnxruntime.__version__, (MASKED, *ACTIVATIONS)
    return (
        SessionImplementation(f"function bodies, onnxruntime {version}", differences=known),
        SessionImplementation(
            f"standard dialect, onnxruntime {version}", dialect="standard", differences=known
        ),
    )


def provider(
    name: str, options: Mapping[str, str], library: Path | None = None
) -> Sequence[SessionImplementation]:
    """Anybody's provider, on the function bodies; nodes that it leaves run on onnxruntime's own.

    Args:
        library: a plug-in provider's.

    Raises:
        ValueError: onnxruntime knows no provider of that name, and no library is given; or it is
            another build of this package's own.
    """
    from onnx_iron.provider import get_ep_name, get_library_path, register

    ours = name == get_ep_name()
    if ours:
        if library is not None and library.resolve() != Path(get_library_path()):
            raise ValueError(
                f"{library} has another build of {name} than this package, whose planner works "
                f"with {get_library_path()}; set ONNX_IRON_LIBRARY={library} instead"
            )
        library = None
        register()
    known = {*onnxruntime.get_available_providers(), *_plugged_in()}
    if library is None and name not in known:
        raise ValueError(
            f"onnxruntime knows no provider {name!r} here; there are {', '.join(sorted(known))}; "
            "--library and --ep-name take a plug-in's"
        )
    if name == CPU:
        return stock()
    arguments = [f"--provider {name}"] if library is None else []
    arguments += [f"--library {library} --ep-name {name}"] if library is not None else []
    arguments += [f"--provider-option {option}={value}" for option, value in options.items()]
    return (
        SessionImplementation(
            name,
            provider=name,
            options=options,
            library=library,
            prepare=register if ours else None,
            arguments=" ".join(arguments),
            differences=() if ours else (MASKED, *ACTIVATIONS),
        ),
    )


def custom_ops() -> SessionImplementation:
    """Our kernels as onnxruntime's custom ops, without the function bodies."""
    from onnx_iron.provider import get_library_path

    return SessionImplementation("custom ops", bodies=False, custom_ops=get_library_path)


def iron(where: str) -> Sequence[SessionImplementation]:
    """Our provider with states apart, in place, and both.

    Args:
        where: the generation of the NPU, or the path that the CPU takes.
    """
    from onnx_iron.provider import get_ep_name, register

    return tuple(
        SessionImplementation(
            f"{get_ep_name()}, {where}{label}",
            provider=get_ep_name(),
            options={"device": "npu" if where.startswith("npu") else "cpu"},
            in_place=in_place,
            prepare=register,
        )
        for in_place, label in (
            ("none", ""),
            ("all", ", states in place"),
            ("mixed", ", every other state in place"),
        )
    )
