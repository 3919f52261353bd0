"""Checks the options that come with a session, and chooses its device."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping

from onnx_iron.provider.devices import DEVICES
from onnx_iron.provider.options import (
    CACHE,
    CACHE_BYTES,
    MOST_BYTES,
    MOST_MS,
    PROFILE,
    PROFILE_BYTES,
    PROFILE_SIZE,
    SINK,
    TIMEOUT,
    TIMEOUT_MS,
    FallbackWarning,
    OptionError,
    Options,
)

CHOICES = {"device": ("auto", *DEVICES), "fallback": ("error", "cpu")}


def read_options(given: Mapping[str, str]) -> Options:
    """Check a session's options and choose the device.

    Raises:
        OptionError: an unknown name or value, or a device that is not there.
    """
    for name, value in given.items():
        if name == SINK:
            continue
        _check("unknown option", name, (*CHOICES, TIMEOUT, CACHE, PROFILE, PROFILE_SIZE))
        if name in CHOICES:
            _check(f"option {name!r} is", value, CHOICES[name])
    timeout_ms = _number(given, TIMEOUT, TIMEOUT_MS, MOST_MS, "milliseconds", " (0 waits for ever)")
    cache_bytes = _number(given, CACHE, CACHE_BYTES, MOST_BYTES, "bytes")
    profile = _file(given, PROFILE)
    profile_bytes = _number(given, PROFILE_SIZE, PROFILE_BYTES, MOST_BYTES, "bytes")
    if PROFILE_SIZE in given and not profile:
        raise OptionError(
            f"IronExecutionProvider: option {PROFILE_SIZE!r} is given without {PROFILE!r}, the "
            "file to write"
        )
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
    sink = given.get(SINK, "")
    return Options(where, fallback, timeout_ms, cache_bytes, sink, profile, profile_bytes)


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


def _file(given: Mapping[str, str], name: str) -> str:
    if name not in given or (given[name] and "\0" not in given[name]):
        return given.get(name, "")
    raise OptionError(
        f"IronExecutionProvider: option {name!r} is {given[name]!r}, expected the path of a file "
        "to write"
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
