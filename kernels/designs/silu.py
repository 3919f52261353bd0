"""SiLU: any element by itself."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.flat import flat
from onnx_iron.kernels.designs.request import Request


def design(request: Request) -> Design:
    """Flat tiles over the columns."""
    return flat(request, "silu_bf16", ("x",))
