"""Models that other exporters made, on our provider and on onnxruntime's own, in turns.

``python -m onnx_iron.tools.bench.others [--only NAME,...] [--lengths 50]``

- an encoder of MiniLM's shape, a transformer and a convolutional net with group norms, as
  ``torch.onnx.export`` writes them; torch itself is measured too;
- the transformer's first and second call of each of many lengths;
- decoders as others write them: onnx's Attention and RotaryEmbedding with growing caches,
  GroupQueryAttention with one buffer for past and present; a prompt, and tokens after it.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from onnx_iron.tools import machine
from onnx_iron.tools.bench.measure import Report, open_model, parser_of, seconds_of
from onnx_iron.tools.bench.onnx_models import Size, decoder, write
from onnx_iron.tools.bench.random_models import SHAPES, TINY
from onnx_iron.tools.bench.talkers import SharedCaches
from onnx_iron.tools.drive import Driver
from onnx_iron.tools.machine import resident_bytes

OURS, PEER = "onnx-iron", "onnxruntime"
PROVIDERS = {OURS: "iron", PEER: "stock"}
WARM_UP = 4


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line a model."""
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--only", default="", metavar="NAME,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--lengths", type=int, default=50, help="(default: %(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="(default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=128, help="(default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=16, help="(default: %(default)s)")
    parser.add_argument("--shape", choices=[*SHAPES], default="SmolLM2-135M")
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.lengths, arguments.layers = 3, 1
        arguments.prompt, arguments.tokens = 8, 2
    wanted = arguments.only.split(",") if arguments.only else [*PARTS]
    if unknown := set(wanted) - {*PARTS}:
        raise ValueError(f"--only has {sorted(unknown)}, expected some of {', '.join(PARTS)}")
    report = Report(arguments)
    for name in wanted:
        try:
            PARTS[name](report, arguments)
        except ModuleNotFoundError as error:
            report.skip(name, f"{error.name} is not installed")
    report.end()


def _sessions(model: bytes | Path, threads: int) -> dict[str, onnxruntime.InferenceSession]:
    return {name: open_model(model, provider, threads) for name, provider in PROVIDERS.items()}


def _calls(
    report: Report, name: str, made: Any, inputs: Mapping[str, Any], arguments: argparse.Namespace
) -> None:
    """Compare a model of torch's with itself."""
    import torch

    torch.set_num_threads(arguments.threads)
    calls: dict[str, Callable[[], Any]] = {
        candidate: functools.partial(session.run, None, dict(inputs))
        for candidate, session in _sessions(made.model, arguments.threads).items()
    }
    calls["torch"] = functools.partial(made.call, inputs)
    report.compare(
        name,
        {candidate: functools.partial(seconds_of, call, 0.0) for candidate, call in calls.items()},
        PEER,
        unit="s",
    )


def encoder(report: Report, arguments: argparse.Namespace) -> None:
    """MiniLM's shape: 6 layers of 384, a short and a longer text."""
    from onnx_iron.tools.bench.torch_models import mini_lm, sentence

    made = mini_lm(1, 64, 512) if arguments.quick else mini_lm(6, 384, 30522)
    for length in (4,) if arguments.quick else (16, 128):
        _calls(report, f"MiniLM, {length} tokens", made, sentence(length), arguments)


def convolutions(report: Report, arguments: argparse.Namespace) -> None:
    """A net of convolutions and group norms."""
    from onnx_iron.tools.bench.torch_models import conv_net

    made = conv_net(16, 1) if arguments.quick else conv_net(64, 6)
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    _calls(report, "GroupNorm conv net", made, {"x": x}, arguments)


def new_lengths(report: Report, arguments: argparse.Namespace) -> None:
    """The first call of each new length, the second, and what memory grows by."""
    from onnx_iron.tools.bench.torch_models import WIDTH, transformer

    sessions = _sessions(transformer(arguments.layers).model, arguments.threads)
    random = np.random.default_rng(0)
    first: dict[str, list[float]] = {name: [] for name in sessions}
    again: dict[str, list[float]] = {name: [] for name in sessions}
    grown = dict.fromkeys(sessions, 0)
    for number in range(arguments.lengths + WARM_UP):
        x = random.standard_normal((1, 16 + number, WIDTH), np.float32)
        turn = list(sessions.items())[:: -1 if number % 2 else 1]
        for name, session in turn:
            before = resident_bytes()
            times = []
            for _ in range(2):
                begin = machine.clock()
                session.run(None, {"x": x})
                times.append(machine.clock() - begin)
            if number >= WARM_UP:
                first[name].append(times[0])
                again[name].append(times[1])
                grown[name] += resident_bytes() - before
    what = f"transformer, {arguments.lengths} lengths"
    report.add(f"{what}, 1st call", first, PEER, unit="s", grown_bytes=grown)
    report.add(f"{what}, 2nd call", again, PEER, unit="s")


def _size(arguments: argparse.Namespace) -> Size:
    values = TINY if arguments.quick else SHAPES[arguments.shape]
    if values["model_type"] != "llama":
        raise ValueError(f"--shape is {arguments.shape}, expected a llama's")
    names = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
    }
    config = SimpleNamespace(**values, **{name: values[key] for name, key in names.items()})
    return Size.of(config, arguments.prompt + arguments.tokens + 8)


def _decoders(report: Report, arguments: argparse.Namespace, attention: str) -> None:
    size = _size(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        path = write(decoder(size, attention), Path(scratch) / "model.onnx")
        sessions = _sessions(path, arguments.threads)
    first: dict[str, Callable[[int], Any]] = {}
    reset: dict[str, Callable[[], None]] = {}
    for name, session in sessions.items():
        if attention == "Attention":
            driver = Driver(session)
            first[name], reset[name] = driver, driver.reset
        else:
            talker = SharedCaches(session, size)
            first[name] = talker.prompt
            reset[name] = functools.partial(talker.rewind, 0)

    def prompt(name: str) -> float:
        reset[name]()
        begin = machine.clock()
        first[name](arguments.prompt)
        return float(arguments.prompt / (machine.clock() - begin))

    def tokens(name: str) -> float:
        prompt(name)
        begin = machine.clock()
        for _ in range(arguments.tokens):
            first[name](1)
        return float(arguments.tokens / (machine.clock() - begin))

    for what, measure in ((f"prefill {arguments.prompt}", prompt), ("decode", tokens)):
        report.compare(
            f"{attention} {what}",
            {name: functools.partial(measure, name) for name in sessions},
            PEER,
            unit="tok/s",
        )


def growing_caches(report: Report, arguments: argparse.Namespace) -> None:
    """A decoder of onnx's own operators, its caches longer with each call."""
    _decoders(report, arguments, "Attention")


def shared_caches(report: Report, arguments: argparse.Namespace) -> None:
    """A decoder as onnxruntime-genai's builder writes and drives it."""
    _decoders(report, arguments, "GroupQueryAttention")


PARTS: dict[str, Callable[[Report, argparse.Namespace], None]] = {
    "encoder": encoder,
    "lengths": new_lengths,
    "convolutions": convolutions,
    "Attention": growing_caches,
    "GroupQueryAttention": shared_caches,
}


if __name__ == "__main__":
    main()
