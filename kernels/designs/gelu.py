"""GELU, exact or by tanh: any element by itself."""

from __future__ import annotations

from onnx_iron.kernels.designs.design import Design
from onnx_iron.kernels.designs.flat import flat
from onnx_iron.kernels.designs.request import Request


def design(request: Request) -> Design:
    """Flat tiles over the columns."""
    tanh = request.op.attributes()["approximate"] == "tanh"
    return flat(request, "gelu_tanh_bf16" if tanh else "gelu_bf16", ("x",))
