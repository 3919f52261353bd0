"""A model for onnxruntime-genai, called as it calls one: masks, positions, caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import onnx_iron

Array = np.ndarray[Any, Any]


def opened(folder: Path, provider: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    providers = ["CPUExecutionProvider"]
    if provider == "iron":
        onnx_iron.register()
        providers = ["IronExecutionProvider", *providers]
    return ort.InferenceSession(str(folder / "model.onnx"), options, providers=providers)


class Caller:
    """Keeps the caches of several sequences, which grow, or have room for so many from the first.

    A prompt's padding is behind it; a row that comes after it stands behind the sequence's own.
    """

    def __init__(self, session: ort.InferenceSession, batch: int = 1, room: int = 0) -> None:
        self._session = session
        self._pasts = {
            item.name: np.zeros((batch, item.shape[1], room, item.shape[3]), np.float32)
            for item in session.get_inputs()
            if item.name.startswith("past_key_values.")
        }
        self._mask = np.ones((batch, 0), np.int64)

    def __call__(self, ids: Array, lengths: list[int] | None = None) -> Array:
        """The logits of more rows (batch, rows), of which so many of each sequence count."""
        batch, rows = ids.shape
        counts = np.array([rows] * batch if lengths is None else lengths)
        before = self._mask.sum(axis=1)
        new = np.arange(rows)[None] < counts[:, None]
        self._mask = np.concatenate([self._mask, new.astype(np.int64)], axis=1)
        given = {
            "input_ids": ids.astype(np.int64),
            "attention_mask": self._mask,
            "position_ids": np.where(new, before[:, None] + np.arange(rows)[None], 0),
        }
        outputs = [item.name for item in self._session.get_outputs()]
        found = dict(zip(outputs, self._session.run(None, {**given, **self._pasts}), strict=True))
        for name in self._pasts:
            self._pasts[name] = found[name.replace("past_key_values", "present")]
        logits: Array = found["logits"]
        return logits
