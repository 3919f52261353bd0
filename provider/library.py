"""The functions of the native library that the planner calls."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_bool, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p

from onnx_iron.kernels import Attribute, Operand, library_path

# Runs a program of another device: (its number, inputs, outputs, room for a reason, its bytes).
Runner = ctypes.CFUNCTYPE(
    c_int,
    c_int64,
    ctypes.POINTER(c_void_p),
    ctypes.POINTER(c_void_p),
    ctypes.POINTER(c_char),
    c_size_t,
)
Release = ctypes.CFUNCTYPE(None, c_int64)

# The planner: (request, question, its length) -> 0.
Planner = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


def get_library_path() -> str:
    """Absolute path of the native library, as onnxruntime wants it for registration.

    Raises:
        ImportError: the library is nowhere.
    """
    return str(library_path())


@functools.cache
def library() -> ctypes.CDLL:
    """The native library with its functions' types declared."""
    loaded = ctypes.CDLL(get_library_path())
    shape = ctypes.POINTER(c_int64)
    numbers = ctypes.POINTER(c_int32)
    attributes = (ctypes.POINTER(Attribute), c_size_t)
    operands = (ctypes.POINTER(Operand), c_size_t)
    functions: dict[str, tuple[object, tuple[object, ...]]] = {
        "set_planner": (None, (Planner,)),
        "request_fail": (None, (c_void_p, c_char_p)),
        "request_answered": (None, (c_void_p,)),
        "request_claim": (None, (c_void_p, ctypes.POINTER(c_size_t), c_size_t)),
        "program_output": (c_bool, (c_void_p, c_size_t, c_int32, c_int32, shape)),
        "program_constant": (c_int32, (c_void_p, c_void_p, c_size_t)),
        "program_value": (
            c_int32,
            (c_void_p, c_int32, c_int32, shape, c_int32, c_size_t, c_size_t),
        ),
        "program_step": (
            c_bool,
            (c_void_p, c_char_p, c_char_p, numbers, c_size_t, numbers, c_size_t, *attributes),
        ),
        "program_pair": (c_bool, (c_void_p, c_size_t, c_size_t)),
        "program_device": (c_bool, (c_void_p, c_int64)),
        "set_device_runner": (None, (Runner, Release)),
        "npu_wait": (c_int, (c_void_p, c_int64, ctypes.POINTER(c_char), c_size_t)),
        "kernel_create": (
            c_int,
            (
                *(c_char_p, *operands, *operands, *attributes),
                *(ctypes.POINTER(c_void_p), ctypes.POINTER(c_char), c_size_t),
            ),
        ),
        "kernel_run": (
            c_int,
            (
                *(c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_void_p), c_size_t),
                *(ctypes.POINTER(c_char), c_size_t),
            ),
        ),
        "kernel_destroy": (None, (c_void_p,)),
        "programs_compiled": (c_size_t, ()),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, f"onnx_iron_{name}")
        function.restype = result
        function.argtypes = arguments
    return loaded


def programs_compiled() -> int:
    """How many programs were compiled in this process."""
    return int(library().onnx_iron_programs_compiled())
