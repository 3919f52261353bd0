"""Norms over the last axis."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from onnx_iron.functional.operand import last_axis
from onnx_iron.graph.handle import Handle
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.rms_norm import RMSNorm


def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Handle:
    """``x`` over the RMS of its last axis, times ``weight`` if given.

    ``eps`` None is the machine epsilon of ``x``'s dtype, as torch documents it; torch 2.13 itself
    takes float32's for bfloat16.

    Raises:
        ValueError: ``normalized_shape`` is not ``x``'s last axis.

    Example:
        >>> F.rms_norm(x, 8, b, eps=1e-5).shape
        (4, 8)
    """
    x = last_axis("rms_norm", x, normalized_shape)
    if eps is None:
        eps = float(ml_dtypes.finfo(x.dtype).eps)  # type: ignore[no-untyped-call]
    return RMSNorm.step(x, weight=weight, epsilon=float(eps))


def layer_norm(
    x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Handle:
    """Layer-normalize ``x`` over its last axis, as torch's ``layer_norm``.

    Subtract the mean, divide by the standard deviation (``eps`` under the root), then multiply by
    ``weight`` and add ``bias`` when given.

    Raises:
        ValueError: ``normalized_shape`` is not ``x``'s last axis.

    Example:
        >>> F.layer_norm(x, (8,), b, b).shape
        (4, 8)
    """
    x = last_axis("layer_norm", x, normalized_shape)
    y = LayerNorm.step(x, weight=weight, epsilon=float(eps))
    return y if bias is None else y + bias
