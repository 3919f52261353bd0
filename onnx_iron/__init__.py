"""Networks written with torch.nn.functional's names, exported to ONNX with explicit state, run by
onnxruntime on AMD NPUs and CPUs.
"""

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

# In a checkout the sub-packages provider, kernels and tools stand beside this folder.
if (_Path(__file__).parent.parent / "provider" / "native").is_dir():
    __path__.append(str(_Path(__file__).parent.parent))

from onnx_iron import functional
from onnx_iron._version import __version__ as __version__
from onnx_iron.export import ExportReport, export
from onnx_iron.functional import Epilogue, Precision
from onnx_iron.graph import Graph, Handle, State, Value, Weight, state

if TYPE_CHECKING:
    from onnx_iron.provider import Placement, Session, register
    from onnx_iron.provider.placement import placement


# Writing and exporting a graph needs neither onnxruntime nor the native library.
_FROM_PROVIDER = ("Placement", "Session", "placement", "register")


def __getattr__(name: str) -> Any:
    if name in _FROM_PROVIDER:
        return getattr(_import_module("onnx_iron.provider"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Epilogue",
    "ExportReport",
    "Graph",
    "Handle",
    "Placement",
    "Precision",
    "Session",
    "State",
    "Value",
    "Weight",
    "export",
    "functional",
    "placement",
    "register",
    "state",
]
