"""Designs: how each operator's data moves through the NPU's columns, as data."""

import importlib
import pkgutil

from onnx_iron.kernels.designs.design import Design, Refusal
from onnx_iron.kernels.designs.device import Device
from onnx_iron.kernels.designs.request import MAKERS, design_for

# Importing a module enters the designs that it makes; a new file needs no entry anywhere.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["MAKERS", "Design", "Device", "Refusal", "design_for"]
