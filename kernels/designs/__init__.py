"""Designs: how each operator's data moves through the NPU's columns, as data.

An operator's design is the function ``design`` in the file that the operator names (``Op.file``).
"""

from onnx_iron.kernels.designs.design import Design, Refusal
from onnx_iron.kernels.designs.makers import design_for, maker_of
from onnx_iron.kernels.designs.target import Target

__all__ = ["Design", "Refusal", "Target", "design_for", "maker_of"]
