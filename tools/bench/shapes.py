"""The first call of each new input shape of a model of another exporter's, against plain
onnxruntime's first call of it, in turns.

``python -m onnx_iron.tools.bench.shapes [--shapes N] [--layers N] [--threads N]``

The model is a transformer as ``torch.onnx.export`` writes it, with an open batch and length: its
shapes are computed in the graph, by Shape, Gather, Concat and Reshape. torch must be installed.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
import warnings
from typing import Any, cast

import numpy as np
import onnxruntime

import onnx_iron

WIDTH, HEADS = 64, 4
WARM_UP = 4


def transformer(layers: int) -> bytes:
    """A model of ``layers`` layers, of input ``x`` (b, t, WIDTH)."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.query = torch.nn.Linear(WIDTH, 3 * WIDTH)
            self.out = torch.nn.Linear(WIDTH, WIDTH)
            self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
            self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            parts = self.query(self.norm(x)).reshape(b, t, 3, HEADS, WIDTH // HEADS)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))

    model = torch.nn.Sequential(*[Layer() for _ in range(layers)]).eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.rand(2, 7, WIDTH),),
            cast(Any, file),
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "b", 1: "t"}},
        )
    return file.getvalue()


def opened(model: bytes, provider: str, threads: int) -> onnxruntime.InferenceSession:
    """A session on a provider, with the CPU's behind it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    providers = list(dict.fromkeys([provider, "CPUExecutionProvider"]))
    return onnxruntime.InferenceSession(model, options, providers=providers)


def call(session: onnxruntime.InferenceSession, x: np.ndarray) -> float:
    """The milliseconds of a call."""
    begin = time.perf_counter()
    session.run(None, {"x": x})
    return (time.perf_counter() - begin) * 1e3


def resident() -> float:
    """MiB of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def main() -> None:
    """Measure, and print a line a provider."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=100, help="lengths that are tried")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    onnx_iron.register()
    onnxruntime.set_default_logger_severity(3)
    model = transformer(arguments.layers)
    sessions = {
        name: opened(model, provider, arguments.threads)
        for name, provider in (
            ("onnx-iron", "IronExecutionProvider"),
            ("onnxruntime", "CPUExecutionProvider"),
        )
    }
    random = np.random.default_rng(0)
    first: dict[str, list[float]] = {name: [] for name in sessions}
    again: dict[str, list[float]] = {name: [] for name in sessions}
    grown = dict.fromkeys(sessions, 0.0)
    for number in range(arguments.shapes + WARM_UP):
        x = random.standard_normal((1, 16 + number, WIDTH), dtype=np.float32)
        for name, session in sessions.items():
            before = resident()
            first_call, second_call = call(session, x), call(session, x)
            if number >= WARM_UP:
                first[name].append(first_call)
                again[name].append(second_call)
                grown[name] += resident() - before
    peer = list(sessions)[-1]
    print(f"{arguments.shapes} lengths, {arguments.layers} layers; medians, ms a call")
    print(f"{'':12}{'first call':>12}{'second':>9}{'ratio':>8}{'second':>9}{'MiB':>8}")
    for name in sessions:
        ratios = [
            statistics.median(mine / theirs for mine, theirs in zip(*pair, strict=True))
            for pair in ((first[name], first[peer]), (again[name], again[peer]))
        ]
        print(
            f"{name:12}{statistics.median(first[name]):12.2f}{statistics.median(again[name]):9.2f}"
            f"{ratios[0]:7.2f}x{ratios[1]:8.2f}x{grown[name]:+8.1f}"
        )


if __name__ == "__main__":
    main()
