"""Single operators on our provider against onnxruntime's own kernels, in turns, float32.

``python -m onnx_iron.tools.bench.operators [--rounds N] [--threads N] [--width N]``

Each operator is a graph of one step. The peer runs the same graph in the standard dialect, so with
onnxruntime's kernel for RMSNormalization, RotaryEmbedding, CausalConvWithState, MatMul and so on, a
Scan for a selective scan, and what onnxruntime makes of LinearAttention.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import onnx_iron
from onnx_iron import functional as F
from onnx_iron.dtypes import Array
from onnx_iron.graph import Graph, State, state

ROWS = (1, 64, 512)
BATCH_SECONDS = 0.02


class OneStep(Graph):
    """A graph whose body is a function of one input and its weights."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        self._function = function
        self.parts = parts

    def body(self, x: Any, *, rows: Any) -> Any:
        return self._function(x, rows, **self.parts)


def operators(rows: int, width: int) -> Mapping[str, OneStep]:
    """The graphs measured, for inputs of (rows, width)."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return random.standard_normal(shape, dtype=np.float32)

    def conv(x: Any, n: Any, taps: Array, carried: Any, activation: str | None) -> Any:
        bounded = x[:n] if rows > 1 else x
        return F.causal_conv1d(bounded, taps, carried, activation=activation)

    def attention(x: Any, n: Any, keys: State, values: State) -> Any:
        query = x.reshape(rows, width // 64, 64)
        y = F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        return y.reshape(rows, width)

    def delta(x: Any, n: Any, decay: Array, beta: Array, carried: State) -> Any:
        heads = x.reshape(rows, width // 128, 128)
        # Longer keys would make the states grow without end.
        y = F.gated_delta_rule(heads, heads * 0.05, heads, decay, beta, carried)
        return y.reshape(rows, width)

    scanned = {
        "a": -np.abs(weight(width, 16)),
        "b": weight(rows, 16),
        "c": weight(rows, 16),
        "carried": state((width, 16), np.float32),
    }
    corrected = {
        "decay": -np.abs(weight(rows, width // 128)),
        "beta": np.abs(weight(rows, width // 128)) % 1,
        "carried": state((width // 128, 128, 128), np.float32),
    }
    carried = {"taps": weight(3, width), "carried": F.conv_state(3, width, rows, np.float32)}
    cache = (512, max(width // 256, 1), 64)
    return {
        "rms_norm": OneStep(lambda x, n, w: F.rms_norm(x, width, w, 1e-5), w=weight(width)),
        "layer_norm": OneStep(lambda x, n, w: F.layer_norm(x, width, w), w=weight(width)),
        "silu": OneStep(lambda x, n: F.silu(x)),
        "gelu": OneStep(lambda x, n: F.gelu(x)),
        "rope": OneStep(
            lambda x, n, angles: F.rope(x.reshape(rows * width // 64, 64), angles),
            angles=weight(rows, 64),
        ),
        "causal_conv1d": OneStep(lambda x, n, **p: conv(x, n, activation=None, **p), **carried),
        "causal_conv1d silu": OneStep(
            lambda x, n, **p: conv(x, n, activation="silu", **p), **carried
        ),
        "selective_scan": OneStep(
            lambda x, n, a, b, c, carried: F.selective_scan(
                x, x, a, b, c, carried, dt_softplus=True
            ),
            **scanned,
        ),
        "gated_delta_rule": OneStep(delta, **corrected),
        "linear": OneStep(
            lambda x, n, w: F.linear(x, w, precision=F.Precision.HIGHEST), w=weight(width, width)
        ),
        "attention 512": OneStep(
            attention, keys=state(cache, np.float32), values=state(cache, np.float32)
        ),
    }


def main() -> None:
    """Measure, and print a line for each operator and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=int, default=2048, help="a multiple of 256")
    arguments = parser.parse_args()
    onnx_iron.register()
    print(f"float32, width {arguments.width}, {arguments.threads} threads; medians, us a call")
    print(f"{'operator':20}{'rows':>5}{'onnxruntime':>13}{'onnx-iron':>11}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        for rows in ROWS:
            for name, graph in operators(rows, arguments.width).items():
                peer, ours = (
                    _runner(graph, rows, arguments, Path(scratch), dialect)
                    for dialect in ("standard", "iron")
                )
                pairs = [
                    (_microseconds(peer), _microseconds(ours)) for _ in range(arguments.rounds)
                ]
                theirs, mine = (statistics.median(column) for column in zip(*pairs, strict=True))
                ratio = statistics.median(a / b for a, b in pairs)
                print(f"{name:20}{rows:5}{theirs:13.1f}{mine:11.1f}{ratio:7.2f}x", flush=True)


def _runner(
    graph: OneStep, rows: int, arguments: argparse.Namespace, scratch: Path, dialect: str
) -> Callable[[], Any]:
    """A call of the graph with every input and output bound, states in place on our provider."""
    trace = graph.trace(x=((rows, arguments.width), np.float32))
    path = scratch / f"{dialect}.onnx"
    onnx_iron.export(trace, path, dialect=dialect)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    providers = ["CPUExecutionProvider"]
    if dialect == "iron":
        providers = ["IronExecutionProvider", *providers]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    binding, buffers = session.io_binding(), {}
    random = np.random.default_rng(1)
    for port in session.get_inputs():
        if port.type == "tensor(int32)":
            array = np.array(rows, np.int32)
        else:
            array = random.standard_normal(port.shape, dtype=np.float32)
        buffers[port.name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(port.name, buffers[port.name])
    for port in session.get_outputs():
        past = port.name.replace("present.", "past.")
        held = buffers.get(past if dialect == "iron" else "")
        if held is None:
            held = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(port.shape, np.float32))
            buffers[f"output {port.name}"] = held
        binding.bind_ortvalue_output(port.name, held)

    def call(_alive: Any = buffers) -> None:  # the binding holds addresses only
        session.run_with_iobinding(binding)

    return call


def _microseconds(call: Callable[[], Any]) -> float:
    """The time of one call, over as many as fill a batch."""
    call()
    calls, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < BATCH_SECONDS or calls < 3:
        call()
        calls += 1
    return elapsed / calls * 1e6


if __name__ == "__main__":
    main()
