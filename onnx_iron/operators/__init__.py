"""The operators: one class each, in the file named after its function."""

import importlib
import pkgutil

from onnx_iron.dtypes import Shape, Spec
from onnx_iron.operators.base import DOMAIN, OPERATORS, VERSION, Case, In, Kind, Op

# Importing a module declares its operators; a new file needs no entry anywhere.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["DOMAIN", "OPERATORS", "VERSION", "Case", "In", "Kind", "Op", "Shape", "Spec"]
