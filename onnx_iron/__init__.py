"""Networks written with torch.nn.functional's names, exported to ONNX with explicit state, run by
onnxruntime on AMD NPUs and CPUs.
"""

from pathlib import Path as _Path

# In a checkout the sub-packages provider, kernels and tools stand beside this folder.
if (_Path(__file__).parent.parent / "provider" / "native").is_dir():
    __path__.append(str(_Path(__file__).parent.parent))

from onnx_iron import functional
from onnx_iron.export import ExportReport, export
from onnx_iron.functional import Epilogue, Precision
from onnx_iron.graph import Graph, Handle, State, Value, Weight, state

__version__ = "0.1.0"

__all__ = [
    "Epilogue",
    "ExportReport",
    "Graph",
    "Handle",
    "Precision",
    "State",
    "Value",
    "Weight",
    "export",
    "functional",
    "state",
]
