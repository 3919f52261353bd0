"""The NPU through XRT's own Python module: one device, its contexts and buffers."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.provider.devices.npu.errors import NpuError, NpuUnavailableError
from onnx_iron.provider.devices.npu.image import HOST_BANK
from onnx_iron.provider.devices.npu.limits import Heap
from onnx_iron.provider.devices.npu.run_list import RunList
from onnx_iron.provider.devices.npu.targets import pci_device, target_of
from onnx_iron.provider.devices.npu.xrt_module import directions, explained, load_pyxrt


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
        self._sync(directions()[0], offset, size)

    def from_device(self, offset: int = 0, size: int | None = None) -> None:
        """Let the host see what the NPU wrote."""
        self._sync(directions()[1], offset, size)

    def _sync(self, direction: Any, offset: int, size: int | None) -> None:
        with explained("a sync of a buffer"):
            self._bo.sync(direction, self.size - offset if size is None else size, offset)


class Context:
    """A hardware context: an image's designs, ready to run. One thread at a time uses it."""

    def __init__(self, device: Device, image: Path) -> None:
        self._device = device
        self._heap = 0
        self._reserve(image.stat().st_size, f"the configurations in {image.name}")
        try:
            self._hardware = device.make_context(image)
        except NpuError:
            device.release(self._heap)
            raise
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
        self._reserve(len(content), f"the instructions of {name}")
        with explained(f"a buffer of {len(content)} bytes for instructions"):
            bo = pyxrt.bo(self._device.handle, len(content), pyxrt.bo.cacheable, group)
            buffer = Buffer(bo, len(content))
        buffer.bytes[:] = np.frombuffer(content, np.uint8)
        buffer.to_device()
        if shared:
            self._instructions[name, content] = buffer
        return buffer

    def _reserve(self, size: int, what: str) -> None:
        self._heap += self._device.reserve(size, what)

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
        self._device.release(self._heap)
        self._heap = 0


class Device:
    """The NPU of this machine. The contexts that were used last are kept, as the driver allows."""

    def __init__(self) -> None:
        pyxrt = load_pyxrt()
        try:
            self.handle = pyxrt.device(0)
            self.name = str(self.handle.get_info(pyxrt.xrt_info_device.name))
            address = str(self.handle.get_info(pyxrt.xrt_info_device.bdf))
        except RuntimeError as error:
            raise NpuUnavailableError(
                f"XRT finds no NPU ({error}); `onnx-iron doctor` looks at driver and permissions"
            ) from None
        self.target = target_of(self.name, pci_device(address))
        self._heap = Heap()
        self._identities: dict[Path, Any] = {}
        self._contexts: OrderedDict[Path, Context] = OrderedDict()
        self._changed = threading.Condition(threading.RLock())

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
            return Buffer(pyxrt.bo(self.handle, max(size, 4), pyxrt.bo.host_only, HOST_BANK), size)

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

    def reserve(self, size: int, what: str) -> int:
        """Count a buffer in the device heap, for which idle contexts make room; returns the bytes
        that are to be given back.

        Raises:
            NpuError: there is no room left.
        """
        with self._changed:
            return self._heap.reserve(size, what, self._evict)

    def release(self, size: int) -> None:
        """Give bytes of the device heap back."""
        with self._changed:
            self._heap.taken -= size

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
