"""Operands of the AIE kernels' tests, aligned as a core has them."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array
from onnx_iron.kernels.aie.library import aligned_copy


def numbers(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Random ones."""
    return aligned_copy((rng.standard_normal(shape) * scale).astype(BFLOAT16))


def every_bfloat16() -> Array:
    """All there are."""
    return aligned_copy(np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16))
