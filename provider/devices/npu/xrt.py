"""The NPU through XRT's own Python module: one device, its contexts, buffers and submissions."""

from __future__ import annotations

import ctypes
import functools
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.native import library
from onnx_iron.provider.devices.npu.errors import (
    ContextLostError,
    NpuError,
    NpuTimeoutError,
    NpuUnavailableError,
)
from onnx_iron.provider.devices.npu.image import TARGETS, Target

# What a kernel's command begins with: the operation, and where its instructions are.
OPCODE = 3
FIRST_BUFFER = 3

_DONE, _TIMED_OUT, _FAILED, _NO_WAIT = range(4)
_REASON_BYTES = 1024


def load_pyxrt() -> Any:
    """XRT's Python module.

    Raises:
        NpuUnavailableError: it is not there for this Python, and how to get it.
    """
    try:
        import pyxrt
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise NpuUnavailableError(
            f"XRT's Python module pyxrt does not load in Python {version} ({error}); it comes with "
            "XRT, for the distribution's own Python. `onnx-iron doctor` says what is missing"
        ) from None
    return pyxrt


@functools.cache
def _directions() -> tuple[Any, Any]:
    direction = load_pyxrt().xclBOSyncDirection
    return direction.XCL_BO_SYNC_BO_TO_DEVICE, direction.XCL_BO_SYNC_BO_FROM_DEVICE


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn XRT's exceptions into ours: what was tried, and XRT's own words."""
    try:
        yield
    except NpuError:
        raise
    except RuntimeError as error:
        raise NpuError(f"NPU: {what} failed: {error}") from None


class Buffer:
    """Memory that the host and the NPU both see. A sync makes one's writes the other's to read.

    Attributes:
        size: bytes.
        bytes: the host's view.
    """

    def __init__(self, bo: Any, size: int) -> None:
        self._bo = bo
        self._parts: dict[tuple[int, int], Any] = {}
        self.size = size
        self.bytes: Array = np.frombuffer(bo.map(), np.uint8, size)
        self.address: int = self.bytes.ctypes.data

    def part(self, offset: int = 0, size: int | None = None) -> Any:
        """The buffer, or a part of it, as an argument of a run."""
        size = self.size - offset if size is None else size
        if offset == 0 and size == self.size:
            return self._bo
        found = self._parts.get((offset, size))
        if found is None:
            found = self._parts[offset, size] = load_pyxrt().bo(self._bo, size, offset)
        return found

    def to_device(self, offset: int = 0, size: int | None = None) -> None:
        """Let the NPU see what the host wrote."""
        self._sync(_directions()[0], offset, size)

    def from_device(self, offset: int = 0, size: int | None = None) -> None:
        """Let the host see what the NPU wrote."""
        self._sync(_directions()[1], offset, size)

    def _sync(self, direction: Any, offset: int, size: int | None) -> None:
        with explained("a sync of a buffer"):
            self._bo.sync(direction, self.size - offset if size is None else size, offset)


class Context:
    """A hardware context: an image's designs, ready to run. One thread at a time uses it."""

    def __init__(self, device: Device, image: Path) -> None:
        self._device = device
        self._hardware = device.make_context(image)
        self._kernels: dict[str, Any] = {}
        self._instructions: dict[tuple[str, bytes], Buffer] = {}
        self.image = image
        self.lock = threading.Lock()
        self.users = 0
        # What programs keep with the context, by their own keys; it goes when the context goes.
        self.kept: dict[Any, Any] = {}

    def kernel(self, name: str) -> Any:
        """A design's kernel."""
        if name not in self._kernels:
            with explained(f"looking for the design {name!r} in {self.image.name}"):
                self._kernels[name] = load_pyxrt().kernel(self._hardware, name)
        return self._kernels[name]

    def instructions(self, name: str, content: bytes, *, shared: bool) -> Buffer:
        """A buffer with a design's instructions; a shared one is the same at every call."""
        if shared and (name, content) in self._instructions:
            return self._instructions[name, content]
        pyxrt = load_pyxrt()
        group = self.kernel(name).group_id(1)
        with explained(f"a buffer of {len(content)} bytes for instructions"):
            bo = pyxrt.bo(self._device.handle, len(content), pyxrt.bo.cacheable, group)
            buffer = Buffer(bo, len(content))
        buffer.bytes[:] = np.frombuffer(content, np.uint8)
        buffer.to_device()
        if shared:
            self._instructions[name, content] = buffer
        return buffer

    def run_list(self) -> RunList:
        """An empty run list."""
        return RunList(load_pyxrt().runlist(self._hardware))

    @property
    def closed(self) -> bool:
        """Whether it was given back."""
        return self._hardware is None

    def close(self) -> None:
        """Give the hardware context back."""
        self.kept.clear()
        self._instructions.clear()
        self._kernels.clear()
        self._hardware = None


class RunList:
    """Runs of designs that go out together and run one after the other."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._runs: list[Any] = []
        self._arguments: list[list[Any]] = []

    def add(self, kernel: Any, instructions: Buffer, buffers: Sequence[Any]) -> None:
        """Add a run of a kernel over buffers (``Buffer.part``)."""
        run = load_pyxrt().run(kernel)
        run.set_arg(0, OPCODE)
        run.set_arg(1, instructions.part())
        run.set_arg(2, instructions.size // 4)
        for index, buffer in enumerate(buffers):
            run.set_arg(FIRST_BUFFER + index, buffer)
        self._handle.add(run)
        self._runs.append(run)
        self._arguments.append([instructions, *buffers])

    def change(self, run: int, buffer: int, to: Any) -> None:
        """Give a run another buffer."""
        if self._arguments[run][1 + buffer] is not to:
            self._runs[run].set_arg(FIRST_BUFFER + buffer, to)
            self._arguments[run][1 + buffer] = to

    def __len__(self) -> int:
        return len(self._runs)

    def run(self, timeout_ms: int) -> None:
        """Submit, and wait. 0 waits for ever. Other Python threads go on meanwhile.

        Raises:
            ContextLostError: the context is gone, or took no command; the runs may have run in
                part.
            NpuTimeoutError: the time is over; the runs may still be running.
            NpuError: a run failed.
        """
        try:
            self._handle.execute()
        except RuntimeError as error:
            raise ContextLostError(f"NPU: submitting {len(self)} runs failed: {error}") from None
        state, text = self._wait(timeout_ms)
        if state == _DONE:
            return
        if state == _TIMED_OUT or "TIMEOUT" in text:
            given = f" within timeout_ms, {timeout_ms}" if state == _TIMED_OUT else ""
            raise NpuTimeoutError(
                f"NPU: {len(self)} runs did not end{given}" + (f" ({text})" if text else "")
            )
        if "ABORT" in text:
            raise ContextLostError(f"NPU: the hardware context was lost ({text})")
        raise NpuError(f"NPU: a run failed ({text})")

    def _wait(self, timeout_ms: int) -> tuple[int, str]:
        """Wait for the runs; what happened, and XRT's words."""
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        # pybind11 keeps the C++ object's address right behind Python's own header.
        address = ctypes.c_void_p.from_address(id(self._handle) + object.__basicsize__)
        state = int(library().onnx_iron_npu_wait(address, timeout_ms, reason, _REASON_BYTES))
        if state != _NO_WAIT:
            return state, reason.value.decode("utf-8", "replace")
        # Another XRT than the ones known: its Python module waits, for as long as the driver does.
        try:
            self._handle.wait()
        except RuntimeError as error:
            return _FAILED, str(error)
        return _DONE, ""


class Device:
    """The NPU of this machine. The contexts that were used last are kept, as the driver allows."""

    def __init__(self) -> None:
        pyxrt = load_pyxrt()
        try:
            self.handle = pyxrt.device(0)
            self.name = str(self.handle.get_info(pyxrt.xrt_info_device.name))
        except RuntimeError as error:
            raise NpuUnavailableError(
                f"XRT finds no NPU ({error}); `onnx-iron doctor` looks at driver and permissions"
            ) from None
        self.target = target_of(self.name)
        self._identities: dict[Path, Any] = {}
        self._contexts: OrderedDict[Path, Context] = OrderedDict()
        self._changed = threading.Condition()

    def buffer(self, size: int) -> Buffer:
        """A buffer of zeros.

        Raises:
            NpuError: the driver refuses it.
        """
        pyxrt = load_pyxrt()
        with explained(
            f"a buffer of {size} bytes (the driver pins buffers in memory: `ulimit -l` and free "
            "memory bound them)"
        ):
            return Buffer(pyxrt.bo(self.handle, max(size, 4), pyxrt.bo.host_only, 0), size)

    @contextmanager
    def context(self, image: Path) -> Iterator[Context]:
        """A context with an image, the caller's alone for as long as the block runs.

        Raises:
            NpuError: none can be had.
        """
        while True:
            context = self._take(image)
            try:
                with context.lock:
                    if not context.closed:
                        yield context
                        return
            finally:
                with self._changed:
                    context.users -= 1
                    self._changed.notify_all()
            # Whoever had it before gave it up; the next one is another.

    def drop(self, context: Context) -> None:
        """Give up a context that is in use; nobody gets it any more."""
        with self._changed:
            if self._contexts.get(context.image) is context:
                del self._contexts[context.image]
        context.close()

    def forget(self, key: Any) -> None:
        """Drop what was kept under a key in every context."""
        with self._changed:
            contexts = list(self._contexts.values())
        for context in contexts:
            context.kept.pop(key, None)

    def make_context(self, image: Path) -> Any:
        """A hardware context as pyxrt has it."""
        pyxrt = load_pyxrt()
        if image not in self._identities:
            with explained(f"loading {image}"):
                loaded = pyxrt.xclbin(str(image))
                self.handle.register_xclbin(loaded)
                self._identities[image] = loaded.get_uuid()
        with explained(f"a hardware context for {image.name}"):
            return pyxrt.hw_context(self.handle, self._identities[image])

    def _take(self, image: Path) -> Context:
        with self._changed:
            while True:
                found = self._contexts.get(image)
                if found is None and len(self._contexts) < self.target.contexts:
                    found = self._make(image)
                if found is not None:
                    self._contexts.move_to_end(image)
                    found.users += 1
                    return found
                if not self._evict():
                    self._changed.wait()

    def _make(self, image: Path) -> Context:
        """A new context. Other processes have some of the driver's, so idle ones make room."""
        while True:
            try:
                context = Context(self, image)
            except NpuError as error:
                if self._evict():
                    continue
                full = "err=-2)" in str(error)
                raise NpuError(
                    f"{error}; "
                    + (
                        f"the driver allows {self.target.contexts} on this machine, for all "
                        "processes together"
                        if full
                        else "`onnx-iron doctor` shows the versions of driver, firmware and XRT"
                    )
                ) from None
            self._contexts[image] = context
            return context

    def _evict(self) -> bool:
        """Close the idle context that was used longest ago."""
        for image, context in self._contexts.items():
            if context.users == 0:
                del self._contexts[image]
                context.close()
                return True
        return False


# Words of the names that drivers give their devices: "NPU Phoenix", "NPU Strix Halo", and of
# Linux's own driver "RyzenAI-npu1", where the number is the driver's, not ours.
_WORDS = {
    "npu1": ("phoenix", "hawk", "npu1"),
    "npu2": ("strix", "krackan", "npu2", "npu4", "npu5", "npu6"),
}


def target_of(name: str) -> Target:
    """The generation, from the device's name in XRT.

    Raises:
        NpuUnavailableError: a name of no generation that there are kernels for.
    """
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    found = [target for target, known in _WORDS.items() if words & set(known)]
    if len(found) != 1:
        known = ", ".join(word for group in _WORDS.values() for word in group)
        raise NpuUnavailableError(
            f"the device {name!r} is none of the NPUs that there are kernels for; expected one of "
            f"{known} in its name. Use device=cpu here"
        )
    return TARGETS[found[0]]


_device: Device | None = None
_device_lock = threading.Lock()


def open_device() -> Device:
    """The NPU, opened when it is first asked for.

    Raises:
        NpuUnavailableError: there is none, and why.
    """
    global _device
    with _device_lock:
        if _device is None:
            _device = Device()
        return _device


@functools.cache
def unavailable() -> str:
    """Why there is no NPU to use; empty where there is one."""
    try:
        open_device()
    except NpuUnavailableError as error:
        return str(error)
    return ""
