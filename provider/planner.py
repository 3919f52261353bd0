"""Answers the native side's questions: options, claims, programs."""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import logging
import traceback
from collections.abc import Mapping
from typing import Any

from onnx_iron.native import Planner, encode, encode_exactly, library
from onnx_iron.provider.claim import decide, group
from onnx_iron.provider.devices import DEVICES
from onnx_iron.provider.devices.sinks import give
from onnx_iron.provider.foresight import foresee
from onnx_iron.provider.graph import read_graph
from onnx_iron.provider.option_checks import read_options
from onnx_iron.provider.options import OptionError
from onnx_iron.provider.records import remember, remember_places
from onnx_iron.provider.subgraph import CompileError, lower_for_all, lower_subgraph

# At debug level it says of each node why it was left, and what becomes of the others.
_log = logging.getLogger("onnx_iron")


class Remarks:
    """Says what is decided, to Python's log and, where the session asks for it, onnxruntime's."""

    def __init__(self, request: int, question: Mapping[str, Any]) -> None:
        self._request, self._verbose = request, bool(question.get("verbose"))

    def __call__(self, text: str) -> None:
        _log.debug("%s", text)
        if self._verbose:
            library().onnx_iron_request_log(self._request, encode(text))


def open_provider(request: int, question: Mapping[str, Any]) -> None:
    """A session asks for the provider: check its options."""
    options = read_options(question["options"])
    library().onnx_iron_request_program_cache(request, options.program_cache_bytes)
    if options.profile:
        path = encode_exactly(options.profile)
        library().onnx_iron_request_profile(request, path, options.profile_bytes)


def claim(request: int, question: Mapping[str, Any]) -> None:
    """onnxruntime offers a graph's nodes."""
    graph = read_graph(question["graph"])
    decisions = decide(graph)
    if not graph.nested:
        device = read_options(question["options"]).device
        remember(question["provider"], device, graph, decisions, question["options"])
    taken = {decision.node.index for decision in decisions if decision.taken}
    groups = group(graph.nodes, taken)
    say = Remarks(request, question)
    for decision in decisions:
        if not decision.taken:
            say(f"{decision.node} is left: {decision.reason}")
    say(
        f"graph '{graph.name}': {len(taken)} of {len(decisions)} nodes are taken, in "
        f"{len(groups)} groups"
    )
    for nodes in groups:
        array = (ctypes.c_size_t * len(nodes))(*nodes)
        library().onnx_iron_request_claim(request, array, len(nodes))


def compile_subgraph(request: int, question: Mapping[str, Any]) -> None:
    """A claimed group is to become a program for given shapes, or is known before there are any."""
    options = read_options(question["options"])
    shapes = [tuple(shape) for shape in question["shapes"]]
    device, provider = DEVICES[options.device], question["provider"]
    if any(dim < 0 for shape in shapes for dim in shape):
        planned = None
        if device.takes_symbols and not options.sink:
            planned = foresee(question["graph"], shapes)
        if planned is not None:
            device.compile(request, planned, provider, options)
        return
    lower = lower_for_all if device.takes_symbols and not options.sink else lower_subgraph
    subgraph = lower(question["graph"], shapes)
    Remarks(request, question)(
        f"{len(question['graph'].nodes)} nodes compiled for the {options.device}: "
        f"{len(subgraph.steps)} calls of kernels, inputs of shapes {shapes}"
    )
    if options.sink:
        give(options.sink, subgraph)
    remember_places(provider, device.compile(request, subgraph, provider, options))


@functools.lru_cache(maxsize=32)
def read_compile_question(text: bytes) -> Mapping[str, Any]:
    """A question for a program but for its shapes, with the graph read: it comes again for each
    set of shapes."""
    question: dict[str, Any] = json.loads(text + b"}")
    question["graph"] = read_graph(question["graph"])
    return question


def read_question(text: bytes) -> Mapping[str, Any]:
    """A question as the native side writes it; shapes, if any, are its last entry."""
    before, key, shapes = text.rpartition(b',"shapes":')
    if not key:
        question: Mapping[str, Any] = json.loads(text)
        return question
    return {**read_compile_question(before), "shapes": json.loads(shapes[:-1])}


ANSWERS = {"open": open_provider, "claim": claim, "compile": compile_subgraph}


def answer(request: int, text: int, length: int) -> int:
    """The planner as C calls it: no exception comes out, a failure is told to the request.

    After a KeyboardInterrupt the native side raises the signal again, so that the caller of
    onnxruntime gets it.
    """
    try:
        question = read_question(ctypes.string_at(text, length))
        ANSWERS[question["kind"]](request, question)
        library().onnx_iron_request_answered(request)
    except (OptionError, CompileError) as error:
        library().onnx_iron_request_fail(request, encode(str(error)))
    except KeyboardInterrupt:
        pass  # the request is neither answered nor failed
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = (
            f"onnx-iron's planner failed with {type(error).__name__}: {error} "
            f"(in {where.name}, {where.filename}:{where.lineno}); please report this"
        )
        library().onnx_iron_request_fail(request, encode(message))
    return 0


_callback = Planner(answer)


def install() -> None:
    """Give the native side its planner, until the interpreter exits; again does no harm."""
    library().onnx_iron_set_planner(_callback)
    atexit.unregister(_remove)
    atexit.register(_remove)


def _remove() -> None:
    # Sessions may be alive still, and never end.
    library().onnx_iron_profiles_write()
    library().onnx_iron_set_planner(Planner())
