"""The native library as onnxruntime loads it."""

from __future__ import annotations

from onnx_iron.native import library, library_path


def get_library_path() -> str:
    """Absolute path of the native library, as onnxruntime wants it for registration.

    Raises:
        ImportError: the library is nowhere.
    """
    return str(library_path())


def programs_compiled() -> int:
    """How many programs were compiled in this process."""
    return int(library().onnx_iron_programs_compiled())
