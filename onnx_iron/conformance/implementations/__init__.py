"""The implementations that this package knows: one small adapter each."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_iron.conformance.cpu_paths import OnPath, other_paths
from onnx_iron.conformance.implementations.base import Declined, Implementation, Results
from onnx_iron.conformance.implementations.designs import designs
from onnx_iron.conformance.implementations.numpy_reference import NumpyReference
from onnx_iron.conformance.implementations.reference_evaluator import OnnxReference
from onnx_iron.conformance.implementations.sessions import custom_ops, iron, stock
from onnx_iron.kernels import cpu_path
from onnx_iron.provider.devices import DEVICES


def implementations() -> Iterator[Implementation]:
    """Everything that this machine can run."""
    yield NumpyReference()
    yield OnnxReference()
    yield from stock()
    yield custom_ops()
    yield from iron(cpu_path())
    for path in other_paths():
        yield from (OnPath(path, made) for made in iron(path))
    if not DEVICES["npu"].unavailable():
        from onnx_iron.provider.devices.npu.xrt import open_device

        yield from iron(open_device().target.name)
    yield from designs()


__all__ = ["Declined", "Implementation", "Results", "implementations"]
