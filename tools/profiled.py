"""What a trace adds up to: by operator and by kind of step, time, bytes and operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_iron.tools.machine import Limits

KINDS = ("operators", "kinds", "nodes")


@dataclass
class Line:
    """Steps that are alike.

    Attributes:
        peak_us: what their operations would have taken at the peak of their dtypes.
        read_us: what their bytes would have taken at the bandwidth.
        threads: the most that had a part in one.
    """

    calls: int = 0
    us: float = 0.0
    bytes: int = 0
    flops: int = 0
    peak_us: float = 0.0
    read_us: float = 0.0
    threads: int = 0

    def add(self, step: Mapping[str, Any], limits: Limits) -> None:
        """Take in an event."""
        arguments = step["args"]
        self.calls += 1
        self.us += step["dur"]
        self.bytes += arguments["bytes"]
        self.flops += arguments["flops"]
        self.read_us += arguments["bytes"] / limits.bandwidth() * 1e6
        self.peak_us += arguments["flops"] / limits.peak(arguments["dtype"]) * 1e6
        self.threads = max(self.threads, arguments["threads"])

    def to_dict(self, whole_us: float) -> dict[str, Any]:
        """Figures, and rates; shares are of all steps' time, and of the limits."""
        us = max(self.us, 1e-3)
        return {
            "calls": self.calls,
            "ms": self.us / 1e3,
            "share": self.us / max(whole_us, 1e-3),
            "bytes": self.bytes,
            "flops": self.flops,
            "GB/s": self.bytes / us / 1e3,
            "of_read": self.read_us / us,
            "GFLOP/s": self.flops / us / 1e3,
            "of_peak": self.peak_us / us,
            "threads": self.threads,
        }


def read_trace(path: Path) -> dict[str, Any]:
    """A trace as JSON."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def end_of(trace: Mapping[str, Any]) -> float:
    """When the last thing in a trace ended, in microseconds."""
    return max((e["ts"] + e["dur"] for e in trace["traceEvents"] if "dur" in e), default=0.0)


def add_up(trace: Mapping[str, Any], after: float, limits: Limits) -> dict[str, Any]:
    """By session, what was done after some microseconds.

    Returns:
        By the session's name its calls, their time, that of their steps, and by operator, by kind
        (operator, dtype and shapes) and by node what ``Line.to_dict`` gives, the longest first.
    """
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    found = {}
    for pid, name in names.items():
        mine = [e for e in events if e["pid"] == pid and e.get("ts", -1) >= after]
        runs = [e for e in mine if e.get("cat") == "run"]
        steps = [e for e in mine if e.get("cat") == "step"]
        if not runs:
            continue
        whole = sum(step["dur"] for step in steps)
        found[name] = {
            "runs": len(runs),
            "npu_runs": sum(run["args"]["device"] == "npu" for run in runs),
            "ms": sum(run["dur"] for run in runs) / 1e3,
            "steps_ms": whole / 1e3,
            "operators": _grouped(steps, _operator, limits, whole),
            "kinds": _grouped(steps, _kind, limits, whole),
            "nodes": _grouped(steps, _node, limits, whole),
        }
    return found


def _operator(step: Mapping[str, Any]) -> str:
    return str(step["name"])


def _kind(step: Mapping[str, Any]) -> str:
    arguments = step["args"]
    return f"{step['name']} {' '.join(arguments['inputs'])} -> {' '.join(arguments['outputs'])}"


def _node(step: Mapping[str, Any]) -> str:
    return f"{step['name']} '{step['args']['node']}'"


def _grouped(
    steps: Iterable[Mapping[str, Any]],
    key: Callable[[Mapping[str, Any]], str],
    limits: Limits,
    whole: float,
) -> list[dict[str, Any]]:
    lines: dict[str, Line] = {}
    for step in steps:
        lines.setdefault(key(step), Line()).add(step, limits)
    longest = sorted(lines.items(), key=lambda item: -item[1].us)
    return [{"name": name, **line.to_dict(whole)} for name, line in longest]
