"""The provider's options, as they come with a session."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

CHOICES = {"device": ("auto", "cpu", "npu"), "fallback": ("error", "cpu")}

NO_NPU = "device is 'npu', and onnx-iron has no NPU backend on this machine"


@dataclass(frozen=True)
class Options:
    """Options with a good value each; ``device`` is the one that runs the model."""

    device: str
    fallback: str


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
        _check("unknown option", name, tuple(CHOICES))
        _check(f"option {name!r} is", value, CHOICES[name])
    device = given.get("device", "auto")
    fallback = given.get("fallback", "error")
    if device == "npu":
        if fallback == "error":
            raise OptionError(f"{NO_NPU}; device 'cpu' runs it, or add fallback 'cpu'")
        _warn_once()
    return Options("cpu", fallback)


def _check(what: str, given: str, known: tuple[str, ...]) -> None:
    if given in known:
        return
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(name) for name in known)
    raise OptionError(f"IronExecutionProvider: {what} {given!r}, expected {listed}{hint}")


_warned = False


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"{NO_NPU}; the CPU runs it (fallback is 'cpu')", FallbackWarning, 2)
