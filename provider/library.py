"""The native library as onnxruntime loads it."""

from __future__ import annotations

from onnx_iron.native import library, library_path
from onnx_iron.provider import planner


def get_library_path() -> str:
    """Absolute path of the native library, as onnxruntime wants it for registration.

    Who asks for it may register it with whatever holds an onnxruntime
    (``onnxruntime.register_execution_provider_library``, onnxruntime-genai's function of that
    name): the planner that it needs from this process is there from then on.

    Raises:
        ImportError: the library is nowhere.
    """
    planner.install()
    return str(library_path())


def programs_compiled() -> int:
    """How many programs were compiled in this process."""
    return int(library().onnx_iron_programs_compiled())
