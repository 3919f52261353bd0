"""What benchmarks share: candidates in turns, medians and spreads, the machine's limits, reports.

A machine slows down and speeds up by itself, so nothing is compared across time: each round takes
every candidate once, beginning with another one each time, and a ratio is of one round's figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import onnxruntime

import onnx_iron
from onnx_iron.tools import machine
from onnx_iron.tools.machine import Limits, Spread, describe
from onnx_iron.tools.options import positive, threads

EP_NAME = "IronExecutionProvider"
# Units of which less is better: seconds, and memory as a multiple of the files' size.
LESS = ("s", "x files")


class Work(NamedTuple):
    """Operations, and bytes read and written."""

    flops: float
    bytes: float


# By a candidate's name, what measures it once: a rate, or seconds.
Candidates: TypeAlias = Mapping[str, Callable[[], float]]


def parser_of(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        default=rounds,
        metavar="N",
        help="turns of each candidate (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=threads,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="of each candidate (default: %(default)s, the cores)",
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count the processor's seconds, with --threads 1: for a machine with other work",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.png",
        help="draw the roofline (needs matplotlib: pip install 'onnx-iron[plot]')",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that it runs; measures nothing"
    )
    return parser


def session_options(count: int) -> onnxruntime.SessionOptions:
    """Of a session that leaves the processor alone while it isn't its turn."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count
    options.log_severity_level = 3
    # A pool that spins between its calls would slow down whoever has its turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def open_model(
    model: bytes | str | Path, provider: str, count: int
) -> onnxruntime.InferenceSession:
    """A session on "iron" or "stock"."""
    providers = ["CPUExecutionProvider"]
    if provider == "iron":
        onnx_iron.register()
        providers = [EP_NAME, *providers]
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, session_options(count), providers=providers)


def seconds_of(call: Callable[[], Any], least: float = 0.02) -> float:
    """The time of one call, over as many as take ``least`` seconds, three at the least."""
    calls, begin = 0, machine.clock()
    while (elapsed := machine.clock() - begin) < least or calls < 3:
        call()
        calls += 1
    return elapsed / calls


class Report:
    """What one benchmark measured: lines on the terminal as they come, and JSON.

    Args:
        arguments: of ``parser_of``'s parser.

    Raises:
        SystemExit: a picture is asked for, and matplotlib is not installed; processor time, and
            more than one thread.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        if arguments.plot is not None and importlib.util.find_spec("matplotlib") is None:
            raise SystemExit("--plot needs matplotlib: pip install 'onnx-iron[plot]'")
        if arguments.processor_time and arguments.threads != 1:
            raise SystemExit(
                f"--processor-time with --threads {arguments.threads}: it counts what all threads "
                "take together; give --threads 1"
            )
        machine.clock = time.process_time if arguments.processor_time else time.perf_counter
        if arguments.quick:
            arguments.rounds = min(arguments.rounds, 2)
            machine.BUFFER_BYTES, machine.STEPS = 1 << 20, 1000
        self._arguments = arguments
        self.limits = Limits(arguments.threads)
        self.limits.sample(2)
        self.rows: list[dict[str, Any]] = []
        self.skipped: dict[str, str] = {}
        what = "figures of --quick mean nothing" if arguments.quick else "medians (quartiles)"
        kind = ", processor time" if arguments.processor_time else ""
        print(f"{arguments.rounds} rounds in turns, {arguments.threads} threads{kind}; {what}")

    def skip(self, what: str, why: str) -> None:
        """Say that a candidate is left out."""
        if self.skipped.get(what) != why:
            print(f"skipped: {what}: {why}")
        self.skipped[what] = why

    def compare(
        self,
        name: str,
        candidates: Candidates,
        peer: str,
        *,
        unit: str,
        work: Mapping[str, Work] | None = None,
        **facts: Any,
    ) -> None:
        """Measure candidates in turns.

        Args:
            candidates: each measures itself once, in ``unit``.
            peer: the candidate that the others' ratios are to; above 1 is better than it.
            unit: "s" for a time, another of which less is better, else a rate.
            work: by candidate what a call, or one of what a rate counts, takes; with it, a
                candidate has a share of the bandwidth, and a place in the roofline.
            facts: what else belongs to the figures.
        """
        if peer not in candidates:
            self.skip(name, f"there is no {peer} to compare with")
            return
        order = list(candidates)
        for candidate in order:
            candidates[candidate]()  # to warm up
        figures: dict[str, list[float]] = {candidate: [] for candidate in order}
        for number in range(self._arguments.rounds):
            self.limits.sample()
            turn = number % len(order)
            for candidate in order[turn:] + order[:turn]:
                figures[candidate].append(candidates[candidate]())
        self.add(name, figures, peer, unit=unit, work=work, **facts)

    def add(
        self,
        name: str,
        figures: Mapping[str, list[float]],
        peer: str,
        *,
        unit: str,
        work: Mapping[str, Work] | None = None,
        **facts: Any,
    ) -> None:
        """Take in figures that were measured in turns, a round's at the same place of each list."""
        row: dict[str, Any] = {"name": name, "unit": unit, "peer": peer, **facts}
        row["candidates"] = {
            candidate: {
                **vars(Spread.of(mine)),
                "figures": mine,
                "ratio": vars(Spread.of(ratios(mine, figures[peer], unit))),
            }
            for candidate, mine in figures.items()
        }
        for candidate, done in (work or {}).items():
            found = row["candidates"][candidate]
            calls = 1 / found["median"] if unit == "s" else found["median"]
            found.update(done._asdict(), of_read=done.bytes * calls / self.limits.bandwidth())
        self.rows.append(row)
        for candidate, found in row["candidates"].items():
            ratio = found["ratio"]
            text = f"x{ratio['median']:6.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
            read = f", {found['of_read']:.0%} of the bandwidth" if "of_read" in found else ""
            print(
                f"{name:34}{candidate:24}{shown(found['median'], unit):>14}"
                f"  {'the peer' if candidate == peer else text}{read}",
                flush=True,
            )

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return {
            "machine": describe(),
            "limits": self.limits.to_dict(),
            "rows": self.rows,
            "skipped": self.skipped,
        }

    def end(self) -> None:
        """Print the limits; write the files that were asked for."""
        self.limits.sample(2)
        print(self.limits)
        if self._arguments.json is not None:
            self._arguments.json.write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        if self._arguments.plot is not None:
            from onnx_iron.tools.bench.roofline import draw

            draw(self.to_dict(), self._arguments.plot)


def ratios(mine: list[float], peers: list[float], unit: str) -> list[float]:
    """How many times better than the peer, round by round."""
    pairs = zip(mine, peers, strict=True)
    return [b / a if unit in LESS else a / b for a, b in pairs]


def shown(figure: float, unit: str) -> str:
    """A figure with its unit, as a person reads it."""
    if unit != "s":
        return f"{figure:.2f} {unit}" if figure < 10 else f"{figure:.1f} {unit}"
    for scale, name in ((1.0, "s"), (1e-3, "ms")):
        if figure >= scale:
            return f"{figure / scale:.2f} {name}"
    return f"{figure * 1e6:.1f} us"
