"""What computes: the native library with the CPU kernels, and single kernels on numpy arrays."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = [
    "Attribute",
    "Operand",
    "cpu_path",
    "kernel_names",
    "library",
    "library_path",
    "run_kernel",
]

Array: TypeAlias = "npt.NDArray[Any]"
Value: TypeAlias = "bool | int | float | str | Sequence[int]"

_NAME = "libonnx_iron.so"
_ERROR_BYTES = 1024
# ONNX's TensorProto.DataType.
_NUMBERS = {
    np.dtype(np.float32): 1,
    np.dtype(np.int32): 6,
    np.dtype(np.int64): 7,
    np.dtype(np.bool_): 9,
    np.dtype(ml_dtypes.bfloat16): 16,
}
_INTEGER, _REAL, _TEXT, _INTEGERS = range(4)


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


def _places() -> Iterator[Path]:
    """Where the library may be, best first."""
    here = Path(__file__).resolve().parent
    # Installed, kernels/ is in the package's folder; in a checkout, beside it.
    for package in (here.parent, here.parent / "onnx_iron"):
        yield package / _NAME
    built = (here.parent / "build").glob(f"**/{_NAME}")
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
    """The native library, loaded once.

    Raises:
        ImportError: it is nowhere.
    """
    loaded = ctypes.CDLL(str(library_path()))
    operands = (POINTER(Operand), c_size_t)
    error = (c_char_p, c_size_t)
    functions: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "kernel_create": (
            c_int,
            (
                c_char_p,
                *operands,
                *operands,
                POINTER(Attribute),
                c_size_t,
                POINTER(c_void_p),
                *error,
            ),
        ),
        "kernel_run": (
            c_int,
            (c_void_p, POINTER(c_void_p), POINTER(c_void_p), c_size_t, *error),
        ),
        "kernel_destroy": (None, (c_void_p,)),
        "kernel_names": (c_char_p, ()),
        "cpu_path": (c_char_p, ()),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, f"onnx_iron_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


def kernel_names() -> list[str]:
    """The operators that have a CPU kernel, sorted."""
    return _text(library().onnx_iron_kernel_names()).split("\n")


def cpu_path() -> str:
    """What the loops are compiled for: ``"avx512"``, ``"avx2"`` or ``"portable"``.

    The best that this CPU has, or the one that the environment variable ``ONNX_IRON_CPU`` names.

    Raises:
        ValueError: ``ONNX_IRON_CPU`` names none, or one that this CPU cannot run.
    """
    path = library().onnx_iron_cpu_path()
    if path is None:
        named = os.environ.get("ONNX_IRON_CPU")
        raise ValueError(f"ONNX_IRON_CPU is {named!r}, expected loops that this CPU runs")
    return _text(path)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _encode(text: str) -> bytes:
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL in it, at which the native library would end it")
    return text.encode()


def _shape(shape: Sequence[int]) -> Any:
    return ctypes.cast((c_int64 * len(shape))(*shape), POINTER(c_int64))


def _operands(arrays: Sequence[Array | None]) -> Any:
    described = (Operand * len(arrays))()
    for slot, array in zip(described, arrays, strict=True):
        if array is None:
            continue
        number = _NUMBERS.get(array.dtype)
        if number is None:
            raise ValueError(f"an operand is {array.dtype}, expected one of {list(_NUMBERS)}")
        slot.dtype, slot.rank, slot.shape = number, array.ndim, _shape(array.shape)
    return described


def _attributes(attributes: Mapping[str, Value]) -> Any:
    described = (Attribute * len(attributes))()
    for slot, (name, value) in zip(described, attributes.items(), strict=True):
        slot.name = _encode(name)
        if isinstance(value, int):
            slot.kind, slot.integer = _INTEGER, int(value)
        elif isinstance(value, float):
            slot.kind, slot.real = _REAL, value
        elif isinstance(value, str):
            slot.kind, slot.text = _TEXT, _encode(value)
        else:
            slot.kind, slot.integers, slot.count = _INTEGERS, _shape(value), len(value)
    return described


def _pointers(arrays: Sequence[Array | None]) -> Any:
    return (c_void_p * len(arrays))(*(None if a is None else a.ctypes.data for a in arrays))


def run_kernel(
    op: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[tuple[Sequence[int], npt.DTypeLike] | Array],
    attributes: Mapping[str, Value] | None = None,
    threads: int = 1,
) -> list[Array]:
    """Make an operator's kernel and run it once.

    Args:
        op: the operator, ``"RMSNorm"``.
        inputs: its operands, ml_dtypes' bfloat16 included; None for an omitted one.
        outputs: for each output its shape and dtype, or the array to write into.
        attributes: the node's attributes.
        threads: 1 runs on the caller's.

    Returns:
        The outputs.

    Raises:
        ValueError: the kernel refuses the node or the call, in its own words; or an output array is
            not contiguous.
    """
    given = [None if a is None else np.require(a, requirements=["C", "A"]) for a in inputs]
    made = [o if isinstance(o, np.ndarray) else np.empty(o[0], o[1]) for o in outputs]
    if not all(array.flags.c_contiguous and array.flags.writeable for array in made):
        raise ValueError("an output array is not contiguous and writeable")
    named = attributes or {}
    native, kernel = library(), c_void_p()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if native.onnx_iron_kernel_create(
        _encode(op),
        _operands(given),
        len(given),
        _operands(made),
        len(made),
        _attributes(named),
        len(named),
        ctypes.byref(kernel),
        error,
        _ERROR_BYTES,
    ):
        raise ValueError(_text(error.value))
    try:
        failed = native.onnx_iron_kernel_run(
            kernel, _pointers(given), _pointers(made), threads, error, _ERROR_BYTES
        )
    finally:
        native.onnx_iron_kernel_destroy(kernel)
    if failed:
        raise ValueError(_text(error.value))
    return made
