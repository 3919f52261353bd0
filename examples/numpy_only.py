"""The exported file on a plain onnxruntime: no library of ours, states in and out by hand.

``python examples/numpy_only.py FOLDER`` with a folder that ``onnx-iron export --dtype float32`` has
written. It needs numpy and onnxruntime, and prints the likeliest token after each of a prompt's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def main(folder: str, prompt: list[int]) -> None:
    session = onnxruntime.InferenceSession(
        Path(folder) / "decode.onnx", providers=["CPUExecutionProvider"]
    )
    described = session.get_modelmeta().custom_metadata_map["onnx_iron.states"]
    states = [state for state in json.loads(described) if state["output"] is not None]
    past = {s["input"]: np.zeros(s["shape"], s["dtype"]) for s in states}
    for position, token in enumerate(prompt):
        inputs = {
            "input_ids": np.array([token], np.int32),
            "position": np.array(position, np.int32),
        }
        outputs = session.run(
            ["logits", *(state["output"] for state in states)],
            {name: inputs[name] for name in inputs if name in _names(session)} | past,
        )
        past = {state["input"]: array for state, array in zip(states, outputs[1:], strict=True)}
        print(token, "->", int(np.asarray(outputs[0])[-1].argmax()))


def _names(session: onnxruntime.InferenceSession) -> set[str]:
    """A model without attention takes no position."""
    return {item.name for item in session.get_inputs()}


if __name__ == "__main__":
    main(sys.argv[1], [1, 2, 3, 4])
