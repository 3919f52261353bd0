"""Standard ONNX operators in terms of the kernels: one rule each, registered on import."""

from onnx_iron.provider.standard import (
    convolution,
    elementwise,
    larger,
    microsoft,
    norms,
    quantized,
    recurrences,
    reductions,
    rotary,
    shapes,
    sums,
)
from onnx_iron.provider.standard.rule import RULES

__all__ = [
    "RULES",
    "convolution",
    "elementwise",
    "larger",
    "microsoft",
    "norms",
    "quantized",
    "recurrences",
    "reductions",
    "rotary",
    "shapes",
    "sums",
]
