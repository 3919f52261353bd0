"""The implementations that this package knows: one small adapter each."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_iron.conformance.implementations.base import Declined, Implementation, Results
from onnx_iron.conformance.implementations.designs import designs
from onnx_iron.conformance.implementations.numpy_reference import NumpyReference
from onnx_iron.conformance.implementations.reference_evaluator import OnnxReference
from onnx_iron.conformance.implementations.sessions import custom_ops, iron, stock


def implementations() -> Iterator[Implementation]:
    """Everything that this machine can run in this process."""
    yield NumpyReference()
    yield OnnxReference()
    yield from stock()
    yield custom_ops()
    yield from iron()
    if npu_is_here():
        yield from iron("npu")
    yield from designs()


def npu_is_here() -> bool:
    """Whether the provider finds an NPU that it can use."""
    from onnx_iron.provider.options import unavailable

    return not unavailable()


__all__ = ["Declined", "Implementation", "Results", "implementations", "npu_is_here"]
