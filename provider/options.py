"""The provider's options, as they come with a session."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from onnx_iron.provider.devices import DEVICES

CHOICES = {"device": ("auto", *DEVICES), "fallback": ("error", "cpu")}
TIMEOUT, CACHE = "timeout_ms", "program_cache_bytes"
# Who wants the subgraphs that a session compiles, by the name that ``devices.sinks`` gave.
SINK = "sink"

# The driver ends a run that hangs by itself; this is for a driver that doesn't.
TIMEOUT_MS = 10000
_MOST_MS = 1 << 30

# Of a program a step takes some 700 bytes: this is enough for some 80 shapes of a large model.
CACHE_BYTES = 32 << 20
_MOST_BYTES = 1 << 62


@dataclass(frozen=True)
class Options:
    """Options with a good value each.

    Attributes:
        device: the one that runs the model, "cpu" or "npu".
        fallback: what is done with nodes and calls that the NPU can't run: "error" or "cpu".
        timeout_ms: how long a call may take the NPU; 0 is for ever.
        program_cache_bytes: how many bytes of programs, one for each set of shapes of its inputs
            that a model leaves open, a session keeps; the latest is kept in any case.
        sink: who is given each subgraph that is compiled; empty for nobody.
    """

    device: str
    fallback: str
    timeout_ms: int
    program_cache_bytes: int = CACHE_BYTES
    sink: str = ""


class FallbackWarning(UserWarning):
    """A model runs on another device than the one that was asked for."""


class OptionError(ValueError):
    """An option's name or value that the provider does not know."""


def read_options(given: Mapping[str, str]) -> Options:
    """Check a session's options and choose the device.

    Raises:
        OptionError: an unknown name or value, or a device that is not there.
    """
    for name, value in given.items():
        if name == SINK:
            continue
        _check("unknown option", name, (*CHOICES, TIMEOUT, CACHE))
        if name in CHOICES:
            _check(f"option {name!r} is", value, CHOICES[name])
    timeout_ms = _number(
        given, TIMEOUT, TIMEOUT_MS, _MOST_MS, "milliseconds", " (0 waits for ever)"
    )
    cache_bytes = _number(given, CACHE, CACHE_BYTES, _MOST_BYTES, "bytes")
    device = given.get("device", "auto")
    # Of "auto" the placement report says what runs where; only "npu" asks for the NPU alone.
    fallback = given.get("fallback", "error" if device == "npu" else "cpu")
    reason = "" if device == "cpu" else DEVICES["npu"].unavailable()
    if device == "npu" and reason:
        if fallback == "error":
            raise OptionError(
                f"device is 'npu', and there is no NPU to use: {reason}; device 'cpu' runs the "
                "model, or add fallback 'cpu'"
            )
        _warn_once(reason)
    on_npu = device != "cpu" and not reason
    where = "npu" if on_npu else "cpu"
    return Options(where, fallback, timeout_ms, cache_bytes, given.get(SINK, ""))


def _check(what: str, given: str, known: tuple[str, ...]) -> None:
    if given in known:
        return
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(name) for name in known)
    raise OptionError(f"IronExecutionProvider: {what} {given!r}, expected {listed}{hint}")


def _number(
    given: Mapping[str, str], name: str, default: int, most: int, unit: str, note: str = ""
) -> int:
    text = given.get(name, str(default))
    if text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    raise OptionError(
        f"IronExecutionProvider: option {name!r} is {text!r}, expected {unit}, 0..{most}{note}"
    )


_warned = False


def _warn_once(reason: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"device is 'npu', and there is no NPU to use: {reason}; the CPU runs the model "
            "(fallback is 'cpu')",
            FallbackWarning,
            2,
        )
