"""A streaming audio denoiser of causal convolutions, fitted here, exported, and run in chunks.

``python examples/denoiser.py [DIR]``

A bank of random causal filters, and a readout that least squares fit on a noisy voice whose clean
form is known. What a filter carries from chunk to chunk is a state of the model, so that a stream
in any chunks gives the samples of the whole file, bit for bit.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import onnx_iron
from onnx_iron import functional as F

RATE, TAPS, FILTERS, CHUNK = 16000, 64, 48, 256


def voice(seconds: float, seed: int) -> Any:
    """Something like a voice: a gliding pitch, eight harmonics, syllables. (samples,) float32."""
    random = np.random.default_rng(seed)
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = 120 + 30 * np.sin(2 * np.pi * 0.7 * time + random.random() * 6)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    tone = sum(np.sin(n * phase) / n for n in range(1, 9))
    syllables = np.clip(np.sin(2 * np.pi * 3 * time + random.random() * 6), 0, 1)
    return (0.3 * tone * syllables).astype(np.float32)


def noisy(clean: Any, seed: int) -> Any:
    """With white noise as loud as the voice."""
    noise = np.random.default_rng(seed).standard_normal(len(clean))
    return (clean + noise * np.sqrt(np.mean(clean**2))).astype(np.float32)


class Denoiser(onnx_iron.Graph):
    """Samples (rows, 1) through the filters, as they are and through SiLU, to samples."""

    def __init__(self, taps: Any, readout: Any) -> None:
        self.spread = np.ones((FILTERS, 1), np.float32)
        self.taps = taps
        self.linear, self.bent = readout
        self.conv = F.conv_state(TAPS, FILTERS, CHUNK, np.float32)

    def body(self, x: Any, *, rows: Any) -> Any:
        x = x[:rows] if x.shape[0] > 1 else x
        exact = {"precision": F.Precision.HIGHEST}
        h = F.causal_conv1d(F.linear(x, self.spread, **exact), self.taps, self.conv)
        return F.linear(h, self.linear, **exact) + F.linear(F.silu(h), self.bent, **exact)


def fitted() -> Denoiser:
    """Random filters, most of them long averages, and the readout that fits a voice best."""
    random = np.random.default_rng(0)
    taps = (random.standard_normal((TAPS, FILTERS)) / np.sqrt(TAPS)).astype(np.float32)
    clean = voice(8, seed=1)
    given = noisy(clean, seed=2)
    before = np.concatenate([np.zeros(TAPS - 1, np.float32), given])
    h = np.lib.stride_tricks.sliding_window_view(before, TAPS) @ taps
    features = np.concatenate([h, h / (1 + np.exp(-h))], axis=1).astype(np.float64)
    normal = features.T @ features + 1e-3 * np.eye(2 * FILTERS)
    readout = np.linalg.solve(normal, features.T @ clean).astype(np.float32)
    return Denoiser(taps, (readout[None, :FILTERS], readout[None, FILTERS:]))


def snr(clean: Any, heard: Any) -> float:
    """How loud the voice is against the rest, in dB."""
    return float(10 * np.log10(np.sum(clean**2) / np.sum((heard - clean) ** 2)))


def main(folder: Path) -> None:
    graph = fitted()
    onnx_iron.export(
        {
            "prefill": graph.trace(x=((CHUNK, 1), np.float32)),
            "decode": graph.trace(x=((1, 1), np.float32)),
        },
        folder,
    )
    clean = voice(3, seed=10)  # another voice, and other noise, than it was fitted to
    given = noisy(clean, seed=11)
    session = onnx_iron.Session(folder)
    whole = session.prefill(x=given[:, None])["output"][:, 0]
    session.reset()
    begin, heard = 0, []
    lengths = np.random.default_rng(0).integers(1, 2000, 1000)
    for length in lengths:  # as a sound card might deliver them
        if begin < len(given):
            heard.append(session.prefill(x=given[begin : begin + length, None])["output"][:, 0])
            begin += length
    streamed = np.concatenate(heard)
    print(f"in {snr(clean, given):.1f} dB, out {snr(clean, streamed):.1f} dB")
    print("in chunks as in one piece:", streamed.tobytes() == whole.tobytes())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
