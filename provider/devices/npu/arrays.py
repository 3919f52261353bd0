"""Arrays whose memory the host and the NPU share: states that stay where the NPU has them.

onnxruntime sees such an array's address like any other. A program that is given the address finds
the buffer behind it, and copies nothing. Between calls the newest contents may be the NPU's alone:
``fetch`` brings them into the array, ``touch`` says that the host has written there.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
import zlib

import numpy as np

from onnx_iron.dtypes import Array, Spec
from onnx_iron.provider.devices.npu.xrt import Buffer, open_device
from onnx_iron.provider.states import Memory

# Bytes by which weights are told apart before they are compared.
_SAMPLE = 4096


class SharedMemory:
    """A buffer that an array lives in, and a second one that a program may write the next contents
    into while it reads the current ones.

    Attributes:
        current: the buffer with the newest contents that the NPU knows of.
        host_newer: the host wrote to the array after that.
        device_newer: the NPU wrote, and the array does not have it yet.
    """

    def __init__(self, size: int) -> None:
        self._own = open_device().buffer(size)
        self._second: Buffer | None = None
        self.current = self._own
        self.host_newer = False
        self.device_newer = False
        self.lock = threading.RLock()

    @property
    def size(self) -> int:
        """Bytes."""
        return self._own.size

    @property
    def address(self) -> int:
        """Where the array is, for the host."""
        return self._own.address

    @property
    def __array_interface__(self) -> dict[str, object]:
        # numpy keeps the owner of an interface alive, and so the buffer.
        return {
            "data": (self.address, False),
            "shape": (self.size,),
            "typestr": "|u1",
            "version": 3,
        }

    def for_device(self) -> Buffer:
        """The current buffer, with what the host wrote."""
        with self.lock:
            if self.host_newer:
                self.current = self._own
                self._own.to_device()
                self.host_newer = False
                self.device_newer = False
            return self.current

    def next(self) -> Buffer:
        """The buffer that is not current."""
        with self.lock:
            if self._second is None:
                self._second = open_device().buffer(self.size)
            return self._second if self.current is self._own else self._own

    def written(self, buffer: Buffer) -> None:
        """The NPU wrote the newest contents into this buffer."""
        with self.lock:
            self.current = buffer
            self.device_newer = True

    def fetch(self) -> None:
        """Bring the newest contents into the array."""
        with self.lock:
            if not self.device_newer:
                return
            self.current.from_device()
            if self.current is not self._own:
                self._own.bytes[:] = self.current.bytes
                self._own.to_device()
                self.current = self._own
            self.device_newer = False

    def touch(self) -> None:
        """The host wrote to the array; what the NPU has is old."""
        with self.lock:
            self.host_newer = True
            self.device_newer = False


_weights: dict[tuple[int, int], weakref.WeakSet[Buffer]] = {}
_weights_lock = threading.Lock()


def weight_buffer(content: Array) -> Buffer:
    """A buffer with bytes that never change; programs that have the same bytes share it.

    Raises:
        NpuError: there is no buffer to be had.
    """
    with _weights_lock:
        key = content.nbytes, zlib.crc32(content[:_SAMPLE].tobytes())
        known = _weights.setdefault(key, weakref.WeakSet())
        for buffer in known:
            if np.array_equal(buffer.bytes, content):
                return buffer
        made = open_device().buffer(content.nbytes)
        made.bytes[:] = content
        made.to_device()
        known.add(made)
        for old in [key for key, buffers in _weights.items() if not buffers]:
            del _weights[old]
        return made


_shared: weakref.WeakValueDictionary[int, SharedMemory] = weakref.WeakValueDictionary()


def shared_array(spec: Spec) -> Array:
    """An array of zeros in memory that the NPU sees.

    Raises:
        NpuError: there is no NPU, or no buffer to be had.
    """
    memory = SharedMemory(max(spec.bytes, 1))
    _shared[memory.address] = memory
    raw = np.asarray(memory)
    return raw[: spec.bytes].view(spec.dtype).reshape(spec.shape)


def find(address: int, size: int) -> SharedMemory | None:
    """The shared memory that begins at an address and is that big."""
    memory = _shared.get(address)
    return memory if memory is not None and memory.size == max(size, 1) else None


class SharedStates(Memory):
    """Where states live: in memory that the NPU sees too."""

    def array(self, spec: Spec) -> Array:
        """An array of zeros."""
        return shared_array(spec)

    def fetch(self, array: Array) -> None:
        """Bring the NPU's newest contents into an array of ``shared_array``."""
        memory = _shared.get(array.ctypes.data)
        if memory is not None:
            memory.fetch()

    def touch(self, array: Array) -> None:
        """Say that the host wrote to an array of ``shared_array``."""
        memory = _shared.get(array.ctypes.data)
        if memory is not None:
            memory.touch()


NPU = SharedStates()


def memory(address: int, size: int) -> Array:
    """The host's memory at an address."""
    if size == 0:
        return np.empty(0, np.uint8)
    array: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    return array
