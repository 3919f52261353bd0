"""Single operators at 1, 64 and 512 rows, float32, on our provider and by onnxruntime's kernels.

``python -m onnx_iron.tools.bench.operators [--width N] [--only NAME,...]``

Standard nodes and com.microsoft's are one model on both providers. Operators of ours are a graph of
one step, and the peer runs it in the standard dialect: so with onnxruntime's kernel for
RotaryEmbedding, CausalConvWithState and so on, a Scan for a selective scan, and what onnxruntime
makes of LinearAttention.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import onnx_iron
from onnx_iron import functional as F
from onnx_iron.dtypes import Array
from onnx_iron.graph import Graph, State, state
from onnx_iron.tools.bench.measure import Report, open_model, parser_of, seconds_of
from onnx_iron.tools.bench.single_nodes import Single, singles
from onnx_iron.tools.estimate import lengths

OURS, PEER = "onnx-iron", "onnxruntime"


class OneStep(Graph):
    """A graph whose body is a function of one input and its weights."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        self._function = function
        self.parts = parts

    def body(self, x: Any, *, rows: Any) -> Any:
        return self._function(x, rows, **self.parts)


def steps(rows: int, width: int) -> Mapping[str, OneStep]:
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
        "silu": OneStep(lambda x, n: F.silu(x)),
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


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line for each operator and number of rows."""
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--width", type=int, default=2048, help="a multiple of 256")
    parser.add_argument("--rows", type=lengths, default=[1, 64, 512], metavar="N,...")
    parser.add_argument("--only", default="", metavar="NAME,...", help="operators by name")
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.width, arguments.rows = 256, [1, 4]
    if arguments.width < 256 or arguments.width % 256:
        raise ValueError(f"--width is {arguments.width}, expected a multiple of 256")
    wanted = [name for name in arguments.only.split(",") if name]
    known = [*singles(1, 256), *steps(1, 256)]
    if unknown := set(wanted) - set(known):
        raise ValueError(f"--only has {sorted(unknown)}, expected some of {', '.join(known)}")
    report = Report(arguments)
    for rows in arguments.rows:
        makers = {**_pairs_of_singles(rows, arguments), **_pairs_of_steps(rows, arguments)}
        for name, make in makers.items():
            if wanted and name not in wanted:
                continue
            pair, work = make()
            report.compare(
                f"{name}, {rows} rows",
                {candidate: _timed(call, arguments.quick) for candidate, call in pair.items()},
                PEER,
                unit="s",
                work=work,
                rows=rows,
            )
    report.end()


def _timed(call: Callable[[], Any], quick: bool) -> Callable[[], float]:
    return lambda: seconds_of(call, 0.0 if quick else 0.02)


def _pairs_of_singles(rows: int, arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    def pair(make: Callable[[], Single]) -> Any:
        single = make()
        model = single.model.SerializeToString()
        calls = {
            candidate: _bound_single(open_model(model, provider, arguments.threads), single)
            for candidate, provider in ((OURS, "iron"), (PEER, "stock"))
        }
        return calls, dict.fromkeys(calls, single.work)

    return {
        name: functools.partial(pair, make) for name, make in singles(rows, arguments.width).items()
    }


def _pairs_of_steps(rows: int, arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    def pair(graph: OneStep) -> Any:
        calls = {
            candidate: _runner(graph, rows, arguments, dialect)
            for candidate, dialect in ((OURS, "iron"), (PEER, "standard"))
        }
        return calls, None

    return {
        name: functools.partial(pair, graph) for name, graph in steps(rows, arguments.width).items()
    }


def _bound_single(session: onnxruntime.InferenceSession, single: Single) -> Callable[[], None]:
    """A call with every input and output bound, caches in place."""
    binding, buffers = session.io_binding(), {}
    for name, array in single.inputs.items():
        buffers[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, buffers[name])
    for port in session.get_outputs():
        held = buffers.get(single.shared.get(port.name, ""))
        if held is None:
            held = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(port.shape, np.float32))
            buffers[port.name] = held
        binding.bind_ortvalue_output(port.name, held)

    def call(_alive: Any = buffers) -> None:  # the binding holds addresses only
        session.run_with_iobinding(binding)

    return call


def _runner(
    graph: OneStep, rows: int, arguments: argparse.Namespace, dialect: str
) -> Callable[[], Any]:
    """A call of the graph with every input and output bound, states in place on our provider."""
    trace = graph.trace(x=((rows, arguments.width), np.float32))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{dialect}.onnx"
        onnx_iron.export(trace, path, dialect=dialect)
        provider = "iron" if dialect == "iron" else "stock"
        session = open_model(path, provider, arguments.threads)
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


if __name__ == "__main__":
    main()
