"""The seat of the NPU's programs: native code calls them here by number, from any thread."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnx_iron.dtypes import Spec
from onnx_iron.native import Release, Runner, library
from onnx_iron.provider.devices.device import Fallbacks
from onnx_iron.provider.devices.npu.arrays import find
from onnx_iron.provider.devices.npu.errors import NpuError
from onnx_iron.provider.devices.npu.program import NpuProgram
from onnx_iron.provider.options import FallbackWarning

DONE, TO_THE_CPU, FAILED = range(3)


@dataclass
class Seat:
    """A program, and what is done when it fails."""

    program: NpuProgram
    provider: int
    fallback: str
    inputs: Sequence[Spec]
    outputs: Sequence[Spec]


_seats: dict[int, Seat] = {}
_fallbacks: dict[int, Fallbacks] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()
_installed = False


def enter(seat: Seat) -> int:
    """Give a program its number."""
    global _installed
    with _lock:
        if not _installed:
            library().onnx_iron_set_device_runner(_runner, _release)
            atexit.register(_remove)
            _installed = True
        number = next(_numbers)
        _seats[number] = seat
        _fallbacks.setdefault(seat.provider, Fallbacks())
        return number


def fallbacks(provider: int) -> Fallbacks:
    """What a session's calls fell back on so far."""
    return _fallbacks.get(provider, Fallbacks())


def run(number: int, inputs: Sequence[int], outputs: Sequence[int], error: int, size: int) -> int:
    """Run a program, as C calls it: no exception comes out."""
    try:
        seat = _seats[number]
        given = [int(inputs[i] or 0) for i in range(len(seat.inputs))]
        made = [int(outputs[i] or 0) for i in range(len(seat.outputs))]
        try:
            seat.program.run(given, made)
        except NpuError as failure:
            if seat.fallback != "cpu":
                raise
            _to_the_cpu(seat, given, made, str(failure))
            return TO_THE_CPU
        return DONE
    except BaseException as failure:
        known = isinstance(failure, NpuError | ValueError)
        text = str(failure) if known else f"onnx-iron: {type(failure).__name__}: {failure}"
        raw = text.encode("utf-8", "replace")[: size - 1] + b"\0"
        ctypes.memmove(error, raw, len(raw))
        return FAILED


def _to_the_cpu(seat: Seat, inputs: Sequence[int], outputs: Sequence[int], reason: str) -> None:
    """Count and say it; the states come to the host, and are the host's from there."""
    counted = _fallbacks[seat.provider]
    if counted.count == 0:
        warnings.warn(f"{reason}; the CPU runs this call (fallback is 'cpu')", FallbackWarning, 2)
    counted.count += 1
    counted.reason = reason
    for address, spec in zip(inputs, seat.inputs, strict=True):
        shared = find(address, spec.bytes)
        if shared is not None:
            shared.fetch()
    for address, spec in zip(outputs, seat.outputs, strict=True):
        shared = find(address, spec.bytes)
        if shared is not None:
            shared.touch()


def release(number: int) -> None:
    """The native program is gone, and so goes this one."""
    with _lock:
        seat = _seats.pop(number, None)
        if seat is None:
            return
        if all(other.provider != seat.provider for other in _seats.values()):
            _fallbacks.pop(seat.provider, None)
    seat.program.close()


def _run(number: int, inputs: Sequence[int], outputs: Sequence[int], error: Any, size: int) -> int:
    return run(number, inputs, outputs, ctypes.addressof(error.contents), size)


_runner = Runner(_run)
_release = Release(release)


def _remove() -> None:
    library().onnx_iron_set_device_runner(Runner(), Release())
