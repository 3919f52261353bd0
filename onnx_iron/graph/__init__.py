"""The graph front end: bodies over handles, states and weights, traced to operator steps."""

from onnx_iron.graph.graph import Graph
from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.parts import State, Weight, state
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import OPERATORS

__all__ = [
    "OPERATORS",
    "Graph",
    "Handle",
    "Role",
    "State",
    "Step",
    "Trace",
    "Value",
    "Weight",
    "state",
]
