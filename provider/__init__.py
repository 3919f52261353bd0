"""How onnxruntime runs a model on onnx-iron: the execution provider and the stateful session."""

from onnx_iron.provider.library import get_library_path
from onnx_iron.provider.placement import Placement, placement
from onnx_iron.provider.profile import write_profile
from onnx_iron.provider.registration import get_ep_name, get_ep_names, register
from onnx_iron.provider.session import Session

__all__ = [
    "Placement",
    "Session",
    "get_ep_name",
    "get_ep_names",
    "get_library_path",
    "placement",
    "register",
    "write_profile",
]
