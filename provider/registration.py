"""Makes the execution provider known to onnxruntime."""

from __future__ import annotations

import threading

import onnxruntime

from onnx_iron.provider.library import get_library_path

EP_NAME = "IronExecutionProvider"
REGISTRATION_NAME = "onnx_iron"

_lock = threading.Lock()


def register() -> None:
    """Register the provider with onnxruntime; once is enough, more do no harm, and after
    ``onnxruntime.unregister_execution_provider_library("onnx_iron")`` it registers it again.

    After it, ``InferenceSession(path, providers=["IronExecutionProvider",
    "CPUExecutionProvider"])`` works, from onnxruntime 1.25 on, and so does
    ``SessionOptions.add_provider_for_devices``.

    Raises:
        ImportError: the native library is nowhere.
        RuntimeError: onnxruntime is too old, or does not take the library.
    """
    with _lock:
        # Asked each time: somebody may have unregistered the library since.
        if _known():
            return
        path = get_library_path()
        try:
            onnxruntime.register_execution_provider_library(REGISTRATION_NAME, path)
        except Exception as error:
            # Another thread may have been first: then it is there.
            if not _known():
                raise RuntimeError(
                    f"onnxruntime {onnxruntime.__version__} does not take {path}: {error}"
                ) from error


def _known() -> bool:
    return any(device.ep_name == EP_NAME for device in onnxruntime.get_ep_devices())


def get_ep_name() -> str:
    """The provider's name in onnxruntime."""
    return EP_NAME


def get_ep_names() -> list[str]:
    """The names of all providers that the library has."""
    return [EP_NAME]
