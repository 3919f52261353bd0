"""The kernels as built for the host, called by name from Python."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron import native
from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array
from onnx_iron.kernels.aie.build import Generation, kernel_library

ALIGNMENT = 64
_DTYPES = {"b": BFLOAT16, "f": FLOAT32}


class _Argument(ctypes.Union):
    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("integer", ctypes.c_int32),
        ("real", ctypes.c_float),
    )


class _Region(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("writable", ctypes.c_bool),
    )


@dataclass(frozen=True)
class KernelLibrary:
    """A generation's kernels.

    Attributes:
        signatures: for each kernel a letter an argument: ``b`` bfloat16 and ``f`` float32 arrays,
            a capital where the kernel writes; ``i`` an integer, ``r`` a real number.
    """

    generation: Generation
    signatures: Mapping[str, str]
    _loaded: ctypes.CDLL
    _indices: Mapping[str, int]

    def call(self, name: str, *arguments: Array | int | float) -> None:
        """Run a kernel on arrays aligned to 64 bytes, which it may not leave.

        Raises:
            TypeError: arguments that are not the kernel's.
            ValueError: what the host model objects to: an address that is not aligned, an access
                outside an array.
        """
        signature = self.signatures[name]
        if len(arguments) != len(signature):
            raise TypeError(f"{name} takes {len(signature)} arguments, not {len(arguments)}")
        slots = (_Argument * len(arguments))()
        regions: list[_Region] = []
        for slot, letter, argument in zip(slots, signature, arguments, strict=True):
            if letter == "i":
                slot.integer = argument
            elif letter == "r":
                slot.real = argument
            else:
                wanted = _DTYPES[letter.lower()]
                if not isinstance(argument, np.ndarray) or argument.dtype != wanted:
                    raise TypeError(f"{name}: {argument!r} is no array of {wanted}")
                if not argument.flags.c_contiguous:
                    raise TypeError(f"{name}: an array is not contiguous")
                slot.pointer = argument.ctypes.data
                regions.append(_Region(argument.ctypes.data, argument.nbytes, letter.isupper()))
        try:
            native.call(
                self._loaded.onnx_iron_aie_call,
                ctypes.c_size_t(self._indices[name]),
                slots,
                (_Region * len(regions))(*regions),
                ctypes.c_size_t(len(regions)),
            )
        except native.NativeError as error:
            raise ValueError(f"{name}: {error}") from None


@functools.cache
def load(generation: Generation) -> KernelLibrary:
    """A generation's kernels, built first if they aren't.

    Raises:
        RuntimeError: no C++ compiler, or one that fails.
    """
    loaded = ctypes.CDLL(str(kernel_library(generation)))
    loaded.onnx_iron_aie_count.restype = ctypes.c_size_t
    loaded.onnx_iron_aie_name.restype = loaded.onnx_iron_aie_signature.restype = ctypes.c_char_p
    indices = [ctypes.c_size_t(i) for i in range(loaded.onnx_iron_aie_count())]
    names = [loaded.onnx_iron_aie_name(i).decode() for i in indices]
    signatures = [loaded.onnx_iron_aie_signature(i).decode() for i in indices]
    return KernelLibrary(
        generation,
        dict(zip(names, signatures, strict=True)),
        loaded,
        {name: i for i, name in enumerate(names)},
    )


def aligned(shape: int | tuple[int, ...], dtype: Any = BFLOAT16) -> Array:
    """An array as a core's memory holds it: aligned to 64 bytes; its elements are all ones, NaN."""
    count, size = int(np.prod(shape)), np.dtype(dtype).itemsize
    room = np.full(count * size + ALIGNMENT, 0xFF, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    placed: Array = room[start : start + count * size].view(dtype)
    return placed.reshape(shape)


def aligned_copy(values: Array) -> Array:
    """The values in an array that is aligned."""
    copied = aligned(values.shape, values.dtype)
    copied[...] = values
    return copied
