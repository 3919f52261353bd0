"""``onnx-iron profile``: where a model's time goes, step by step, against the machine's limits."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_iron.tools.options import Subparsers, positive, threads

if TYPE_CHECKING:
    import onnxruntime

    from onnx_iron.tools.machine import Limits


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "profile",
        parents=[common],
        help="show where a model's time goes, against the machine's limits",
        description="Run a model on our provider and add up its steps: calls, time, bytes and "
        "operations a second, and their share of what the machine reached in the same run. A "
        "folder that onnx-iron export wrote gets a prompt and then tokens; another model is called "
        "with made-up inputs, and with its caches where it has some.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="an .onnx file or their folder")
    parser.add_argument(
        "--prompt", type=positive, default=64, metavar="N", help="tokens (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens",
        type=positive,
        default=16,
        metavar="N",
        help="decoded after the prompt, or calls of a model without caches (default: %(default)s)",
    )
    parser.add_argument(
        "--dim",
        type=dimension,
        action="append",
        default=[],
        metavar="NAME=N",
        help="what an open dimension of another exporter's model is; may be given several times",
    )
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="(default: a thread for each core)"
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "npu"), default="auto", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--by",
        choices=("operators", "kinds", "nodes"),
        action="append",
        help="what is added up: operators, kinds (an operator with its shapes) or nodes; may be "
        "given several times (default: operators and kinds)",
    )
    parser.add_argument(
        "--top", type=positive, default=20, metavar="N", help="lines (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print it for machines, all lines")
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="keep the trace, for chrome://tracing and ui.perfetto.dev",
    )
    parser.set_defaults(run=run)


def dimension(text: str) -> tuple[str, int]:
    """Parse NAME=N, as argparse's ``type``."""
    name, equals, size = text.rpartition("=")
    if not (name and equals and size.isdecimal() and len(size) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N, as sequence_length=16")
    return name, int(size)


def run(arguments: argparse.Namespace) -> None:
    """Measure, and print the tables.

    Raises:
        FileNotFoundError: no model is there.
        ValueError: a model that can't be called so, or a trace that can't be written.
    """
    from onnx_iron.tools.machine import Limits, describe
    from onnx_iron.tools.profiled import add_up

    arguments.threads = arguments.threads or len(os.sched_getaffinity(0))
    limits = Limits(arguments.threads)
    with tempfile.TemporaryDirectory(prefix="onnx-iron-") as scratch:
        path = arguments.trace or Path(scratch) / "trace.json"
        limits.sample(3)
        trace, after = traced(arguments, path, limits)
        limits.sample(3)
    sessions = add_up(trace, after, limits)
    dropped = int(trace["otherData"]["dropped_runs"])
    report = {"machine": describe(), "limits": limits.to_dict(), "sessions": sessions}
    if arguments.json:
        print(json.dumps({**report, "dropped_runs": dropped}, indent=2))
        return
    for name, session in sessions.items():
        for by in arguments.by or ("operators", "kinds"):
            _show(name, session, by, arguments.top)
    print(limits)
    if dropped:
        print(f"{dropped} calls had no room in the trace and are not in the tables")


def traced(
    arguments: argparse.Namespace, path: Path, limits: Limits
) -> tuple[dict[str, Any], float]:
    """The trace of the calls, and when in it those to warm up were over, in microseconds."""
    from onnx_iron.provider import write_profile
    from onnx_iron.provider.opening import ROLES, model_files
    from onnx_iron.tools.profiled import end_of, read_trace

    files = model_files(arguments.model)
    options = {"profile": str(path), "profile_bytes": str(1 << 30), "device": arguments.device}
    ours = all(role in files for role in ROLES)
    runner = _Decoder(arguments, options) if ours else _Others(arguments, options, files)
    runner(2)
    write_profile(path)
    after = end_of(read_trace(path))
    limits.sample()
    runner(arguments.tokens)
    write_profile(path)
    return read_trace(path), after


def _session_options(count: int) -> onnxruntime.SessionOptions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count
    # Threads that spin between calls would take the processor from what measures the limits.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


class _Decoder:
    """A pair of ours: a prompt, and tokens after it."""

    def __init__(self, arguments: argparse.Namespace, options: dict[str, str]) -> None:
        from onnx_iron import Session

        self._prompt = arguments.prompt
        self._session = Session(
            arguments.model,
            provider_options=options,
            session_options=_session_options(arguments.threads),
        )
        context = self._session.context
        needed = arguments.prompt + arguments.tokens
        if context is not None and needed > context:
            raise ValueError(
                f"--prompt {arguments.prompt} and --tokens {arguments.tokens} take {needed} "
                f"positions, and the model's context is {context}"
            )

    def __call__(self, tokens: int) -> None:
        import numpy as np

        # Any ids that each vocabulary has: speed does not depend on which.
        ids = np.arange(self._prompt + tokens, dtype=np.int32) % 97
        if self._session.batch is not None:
            ids = np.tile(ids, (self._session.batch, 1))
        self._session.reset()
        self._session.prefill(input_ids=ids[..., : self._prompt])
        for place in range(self._prompt, self._prompt + tokens):
            self._session.decode(input_ids=ids[..., place : place + 1])


class _Others:
    """Models of any make, each called with a prompt, and then with one row where it has caches."""

    def __init__(
        self, arguments: argparse.Namespace, options: dict[str, str], files: dict[str, Path]
    ) -> None:
        from onnx_iron.provider.opening import open_session
        from onnx_iron.provider.weights import load_model
        from onnx_iron.tools.drive import Driver

        self._prompt = arguments.prompt
        chosen = _session_options(arguments.threads)
        self._drivers = [
            Driver(
                open_session(path, "iron", options, chosen, load_model(path)), dict(arguments.dim)
            )
            for path in files.values()
        ]

    def __call__(self, calls: int) -> None:
        for driver in self._drivers:
            driver.reset()
            if driver.has_caches:
                driver(self._prompt)
            for _ in range(calls):
                driver(1 if driver.has_caches else self._prompt)


def _show(name: str, session: dict[str, Any], by: str, top: int) -> None:
    npu = f", {session['npu_runs']} of them on the NPU" if session["npu_runs"] else ""
    between = session["ms"] - session["steps_ms"]
    print(
        f"{name} by {by}: {session['runs']} calls{npu}, {session['ms']:.2f} ms, of them "
        f"{between:.2f} outside of steps"
    )
    head = ("calls", "ms", "share", "GB/s", "of read", "GFLOP/s", "of peak", "threads")
    print("".join(f"{column:>9}" for column in head) + "  " + by.removesuffix("s"))
    lines = session[by]
    for line in lines[:top]:
        print(
            f"{line['calls']:9}{line['ms']:9.3f}{line['share']:9.1%}{line['GB/s']:9.1f}"
            f"{line['of_read']:9.0%}{line['GFLOP/s']:9.1f}{line['of_peak']:9.0%}"
            f"{line['threads']:9}  {shown(line['name'])}"
        )
    if len(lines) > top:
        rest = sum(line["ms"] for line in lines[top:])
        print(f"{'':9}{rest:9.3f}  {len(lines) - top} more (--top)")
    print()


def shown(name: str) -> str:
    """A kind of step on little room."""
    for long, short in (("bfloat16 ", "bf16"), ("float32 ", "f32"), ("int32 ", "i32"), (", ", ",")):
        name = name.replace(long, short)
    return name
