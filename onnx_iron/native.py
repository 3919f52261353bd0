"""The native library: where it is, its functions, and how operands and errors cross to it."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from onnx_iron.dtypes import NUMBERS, Spec

__all__ = [
    "Kernel",
    "NativeError",
    "Planner",
    "Release",
    "Runner",
    "attribute_array",
    "call",
    "encode",
    "encode_exactly",
    "library",
    "library_path",
    "shape_array",
]

_NAME = "libonnx_iron.so"
_ERROR_BYTES = 4096
_INTEGER, _REAL, _TEXT, _INTEGERS = range(4)


class NativeError(ValueError):
    """What the native library objects to, in its own words."""


class Attribute(ctypes.Structure):
    """An attribute as the native library takes it; ``kind`` says which of the others holds it."""

    _fields_ = (
        ("name", c_char_p),
        ("kind", c_int32),
        ("integer", c_int64),
        ("real", c_float),
        ("text", c_char_p),
        ("integers", POINTER(c_int64)),
        ("count", c_size_t),
    )


class Operand(ctypes.Structure):
    """Dtype and shape of a kernel's operand; dtype 0 is an omitted one."""

    _fields_ = (("dtype", c_int32), ("rank", c_int32), ("shape", POINTER(c_int64)))


# Runs a program of another device: (its number, inputs, outputs, room for a reason, its bytes).
Runner = CFUNCTYPE(c_int, c_int64, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_char), c_size_t)
Release = CFUNCTYPE(None, c_int64)

# The planner: (request, question, its length) -> 0.
Planner = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)

_ERROR = (POINTER(c_char), c_size_t)
_SHAPE, _POINTERS = POINTER(c_int64), POINTER(c_void_p)
_ATTRIBUTES, _OPERANDS = (POINTER(Attribute), c_size_t), (POINTER(Operand), c_size_t)

# Each function's result and arguments, without the prefix onnx_iron_.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cpu_path": (c_char_p, ()),
    "kernel_names": (c_char_p, ()),
    "kernel_create": (
        c_int,
        (c_char_p, *_OPERANDS, *_OPERANDS, *_ATTRIBUTES, _POINTERS, *_ERROR),
    ),
    "kernel_run": (c_int, (c_void_p, _POINTERS, _POINTERS, c_size_t, *_ERROR)),
    "kernel_destroy": (None, (c_void_p,)),
    "limit_products": (c_double, (c_bool, c_int64)),
    "limit_read": (c_uint64, (c_void_p, c_size_t)),
    "set_planner": (None, (Planner,)),
    "request_fail": (None, (c_void_p, c_char_p)),
    "request_answered": (None, (c_void_p,)),
    "request_log": (None, (c_void_p, c_char_p)),
    "request_program_cache": (None, (c_void_p, c_size_t)),
    "request_profile": (None, (c_void_p, c_char_p, c_size_t)),
    "profile_write": (c_int, (c_char_p, *_ERROR)),
    "profiles_write": (None, ()),
    "request_claim": (None, (c_void_p, POINTER(c_size_t), c_size_t)),
    "program_recipe": (c_bool, (c_void_p, _SHAPE, c_size_t, c_char_p, c_size_t, c_bool)),
    "arena_offsets": (c_bool, (_SHAPE, c_size_t, _SHAPE)),
    "program_device": (c_bool, (c_void_p, c_int64)),
    "programs_compiled": (c_size_t, ()),
    "programs_cached": (c_size_t, ()),
    "frame_bytes": (c_size_t, ()),
    "set_device_runner": (None, (Runner, Release)),
    "npu_wait": (c_int, (c_void_p, c_int64, *_ERROR)),
}


def _places() -> Iterator[Path]:
    """Where the library may be, best first."""
    package = Path(__file__).resolve().parent
    yield package / _NAME
    # In a checkout, the newest build.
    built = (package.parent / "build").glob(f"**/{_NAME}")
    yield from sorted(built, key=lambda path: path.stat().st_mtime, reverse=True)
    try:
        files = importlib.metadata.files("onnx-iron") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == _NAME:
            yield Path(str(file.locate()))


def library_path() -> Path:
    """Where the native library is.

    The environment variable ``ONNX_IRON_LIBRARY`` names it; else it is the one in the package's
    folder, in a checkout's ``build/``, or among the installed distribution's files.

    Raises:
        ImportError: it is nowhere.
    """
    named = os.environ.get("ONNX_IRON_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise ImportError(f"ONNX_IRON_LIBRARY is {named!r}, and there is no such file")
        return Path(named).resolve()
    for place in _places():
        if place.is_file():
            return place.resolve()
    raise ImportError(f"{_NAME} was not found; `pip install .` in the checkout builds it")


@functools.cache
def library() -> ctypes.CDLL:
    """The native library, loaded once, its functions' types declared.

    Raises:
        ImportError: it is nowhere, or it is of another version than this package.
    """
    path = library_path()
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(loaded, f"onnx_iron_{name}")
        except AttributeError:
            raise ImportError(
                f"{path} has no onnx_iron_{name}: it was built from other sources than this "
                "package; build it anew (`pip install .` in the checkout)"
            ) from None
        function.restype, function.argtypes = result, arguments
    return loaded


# -- what crosses ---------------------------------------------------------------------------


def encode(text: str) -> bytes:
    """A text for people, whatever bytes it has: C ends it at a NUL, so that is written out."""
    return text.replace("\0", "\\0").encode("utf-8", "surrogateescape")


def encode_exactly(text: str) -> bytes:
    """A text that decides what is computed.

    Raises:
        ValueError: it has a NUL, at which C would end it.
    """
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL in it")
    return text.encode("utf-8", "surrogateescape")


def shape_array(shape: Sequence[int]) -> ctypes.Array[c_int64]:
    """A shape, or other integers, for C."""
    return (c_int64 * len(shape))(*shape)


def attribute_array(attributes: Mapping[str, Any]) -> ctypes.Array[Attribute]:
    """A node's attributes for C: integers, floats, strings, and sequences of integers."""
    array = (Attribute * len(attributes))()
    for slot, (name, value) in zip(array, attributes.items(), strict=True):
        slot.name = encode_exactly(name)
        if isinstance(value, int):
            slot.kind, slot.integer = _INTEGER, int(value)
        elif isinstance(value, float):
            slot.kind, slot.real = _REAL, value
        elif isinstance(value, str):
            slot.kind, slot.text = _TEXT, encode_exactly(value)
        else:
            numbers = shape_array(value)
            slot.kind, slot.count = _INTEGERS, len(numbers)
            slot.integers = ctypes.cast(numbers, POINTER(c_int64))
            slot._numbers = numbers  # lives as long as the array
    return array


def operand_array(specs: Sequence[Spec | None]) -> ctypes.Array[Operand]:
    """A node's operands for C; None is an omitted one.

    Raises:
        ValueError: a dtype that no kernel knows.
    """
    array = (Operand * len(specs))()
    for slot, spec in zip(array, specs, strict=True):
        if spec is None:
            continue
        number = NUMBERS.get(spec.dtype)
        if number is None:
            known = [dtype.name for dtype in NUMBERS]
            raise ValueError(f"an operand is {spec.dtype.name}, expected one of {known}")
        numbers = shape_array(spec.shape)
        slot.dtype, slot.rank = number, len(spec.shape)
        slot.shape = ctypes.cast(numbers, POINTER(c_int64))
        slot._numbers = numbers
    return array


def call(function: Any, *arguments: Any) -> None:
    """Call a function of C whose last two arguments are room for an error's text, and its size.

    Raises:
        NativeError: the function returned something other than 0; its text.
    """
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if function(*arguments, error, c_size_t(_ERROR_BYTES)):
        raise NativeError(error.value.decode("utf-8", "replace"))


class Kernel:
    """A CPU kernel for operands of known dtypes and shapes; ``close`` it, or use it in ``with``.

    Args:
        op: the kernel's name, such as ``"RMSNorm"``.
        inputs: None for an omitted one.
        outputs: as the operator has them for these inputs.
        attributes: the node's.

    Raises:
        NativeError: there is no kernel for them, and why.
        ValueError: a text with a NUL, or a dtype that no kernel knows.
    """

    def __init__(
        self,
        op: str,
        inputs: Sequence[Spec | None],
        outputs: Sequence[Spec | None],
        attributes: Mapping[str, Any],
    ) -> None:
        given, made, named = (
            operand_array(inputs),
            operand_array(outputs),
            attribute_array(attributes),
        )
        self._handle = c_void_p()
        call(
            library().onnx_iron_kernel_create,
            *(encode_exactly(op), given, len(given), made, len(made), named, len(named)),
            ctypes.byref(self._handle),
        )

    def run(
        self, inputs: Sequence[int | None], outputs: Sequence[int | None], threads: int = 1
    ) -> None:
        """Run on the operands' addresses.

        Raises:
            NativeError: a per-call value that is out of its bounds.
        """
        call(
            library().onnx_iron_kernel_run,
            self._handle,
            (c_void_p * len(inputs))(*inputs),
            (c_void_p * len(outputs))(*outputs),
            threads,
        )

    def close(self) -> None:
        """Give the kernel back."""
        library().onnx_iron_kernel_destroy(self._handle)
        self._handle = c_void_p()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
