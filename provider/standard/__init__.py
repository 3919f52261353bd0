"""Standard ONNX operators in terms of the kernels: one rule each, registered on import."""

from onnx_iron.provider.standard import elementwise, microsoft, recurrences, rotary, shapes, sums
from onnx_iron.provider.standard.rule import RULES

__all__ = ["RULES", "elementwise", "microsoft", "recurrences", "rotary", "shapes", "sums"]
