"""A graph of one's own in ``InferenceSession``, its state bound to one buffer and updated in place.

``python examples/iobinding.py``
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import onnxruntime

import onnx_iron
from onnx_iron import functional as F

WIDTH = 8


class Average(onnx_iron.Graph):
    """The mean of the last four rows, as a causal filter that carries three."""

    def __init__(self) -> None:
        self.taps = np.full((4, WIDTH), 0.25, np.float32)
        self.rows = F.conv_state(4, WIDTH, dtype=np.float32)

    def body(self, x: Any) -> Any:
        return F.causal_conv1d(x, self.taps, self.rows)


def main() -> None:
    onnx_iron.register()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/average.onnx"
        onnx_iron.export(Average().trace(x=((1, WIDTH), np.float32)), path)
        session = onnxruntime.InferenceSession(
            path, providers=["IronExecutionProvider", "CPUExecutionProvider"]
        )
        x, output = np.zeros((1, WIDTH), np.float32), np.zeros((1, WIDTH), np.float32)
        state = np.zeros((3, WIDTH), np.float32)
        binding = session.io_binding()
        for bind, name, array in (
            (binding.bind_input, "x", x),
            (binding.bind_input, "past.rows", state),
            (binding.bind_output, "output", output),
            (binding.bind_output, "present.rows", state),  # the same memory: no copy is made
        ):
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        for step in range(6):
            x[:] = step
            session.run_with_iobinding(binding)
            print(step, output[0, 0])


if __name__ == "__main__":
    main()
