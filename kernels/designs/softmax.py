"""Softmax: any row by itself."""

from __future__ import annotations

from onnx_iron.kernels.designs.by_rows import by_rows
from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.request import Request


def design(request: Request) -> Design:
    """Blocks of rows over the columns."""
    return by_rows(request, "softmax_bf16")
