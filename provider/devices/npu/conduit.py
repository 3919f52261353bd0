"""Where in memory the C++ object behind one of pyxrt's is."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from onnx_iron.native import library

# What pybind11 keeps in an interpreter is named by its version and, behind that, by the C++ ABI
# that it was built for; a module's objects are handed to who names that ABI.
_KEPT, _ENDING = "__pybind11_internals_v", "__"
_TYPE_INFO = b"St9type_info"  # of std::type_info itself, by the Itanium ABI's names

_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_new.restype = ctypes.py_object
_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes = (ctypes.py_object,)
_capsule_name.restype = ctypes.c_char_p
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer.restype = ctypes.c_void_p


def run_list_address(handle: Any) -> int:
    """The ``xrt::runlist`` of pyxrt's run list: as pybind11 2.13 and later hand it over, or read
    from the object of an older one, which keeps it right behind Python's own header.
    """
    address = handed_over(handle)
    if address is not None:
        return address
    return int(ctypes.c_void_p.from_address(id(handle) + object.__basicsize__).value or 0)


def handed_over(handle: Any) -> int | None:
    """The address as pybind11 says it; None where it says nothing."""
    hand_over = getattr(handle, "_pybind11_conduit_v1_", None)
    if hand_over is None:
        return None
    for abi in _abis():
        made = hand_over(abi, _run_list_type(), b"raw_pointer_ephemeral")
        if made is not None:
            return int(_capsule_pointer(made, _capsule_name(made)))
    return None


@cache
def _run_list_type() -> Any:
    """The C++ type, as pybind11 asks for it."""
    described = library().onnx_iron_npu_run_list_type
    described.restype = ctypes.c_void_p
    return _capsule_new(described(), _TYPE_INFO, None)


def _abis() -> list[bytes]:
    """Those of the modules that pybind11 made for this interpreter."""
    state = ctypes.pythonapi.PyInterpreterState_Get
    state.restype = ctypes.c_void_p
    kept = ctypes.pythonapi.PyInterpreterState_GetDict
    kept.argtypes, kept.restype = (ctypes.c_void_p,), ctypes.c_void_p
    # The reference is borrowed, and ctypes would give a result that is an object back.
    entries = ctypes.cast(kept(state()), ctypes.py_object).value
    names = [key for key in entries if isinstance(key, str) and key.startswith(_KEPT)]
    endings = (name[len(_KEPT) :].lstrip("0123456789") for name in names)
    abis = [ending.removesuffix(_ENDING) for ending in endings]
    # Since 3.0 the underscore before it is no part of it.
    return [abi.encode() for one in abis for abi in (one.removeprefix("_"), one)]
