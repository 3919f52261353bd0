"""What was found, as JSON for machines, as text for terminals."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from onnx_iron.conformance.runner import Outcome, Status

FORMAT = "onnx_iron.conformance.1"
_PACKAGES = ("onnx-iron", "onnxruntime", "onnx", "numpy", "ml_dtypes")


@dataclass(frozen=True)
class Report:
    """Outcomes, and where and when they were found."""

    environment: Mapping[str, str]
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes that are failures."""
        return [outcome for outcome in self.outcomes if outcome.status is Status.FAILED]

    def cells(self) -> dict[tuple[str, str, str], list[Outcome]]:
        """The outcomes of each subject, dtype and implementation."""
        found: dict[tuple[str, str, str], list[Outcome]] = {}
        for outcome in self.outcomes:
            key = outcome.subject, outcome.dtype, outcome.implementation
            found.setdefault(key, []).append(outcome)
        return found

    def only_failed(self) -> Report:
        """The failures alone."""
        return dataclasses.replace(self, outcomes=tuple(self.failed))

    def merged(self, others: Iterable[Report]) -> Report:
        """With the outcomes of other runs, on other machines or versions."""
        outcomes = [*self.outcomes, *(o for other in others for o in other.outcomes)]
        return dataclasses.replace(self, outcomes=tuple(outcomes))


def environment() -> dict[str, str]:
    """Versions, machine and date."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["machine"] = f"{platform.system()} {platform.machine()}, {_processor()}"
    found["date"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # another system keeps it elsewhere
    return platform.processor() or "unknown processor"


def reproduction(outcome: Outcome) -> str:
    """The command that runs one case on one implementation again."""
    return (
        f"onnx-iron conformance --case {shlex.quote(outcome.case)} "
        f"--implementation {shlex.quote(outcome.implementation)}"
    )


def to_json(report: Report) -> str:
    """The report for a machine."""
    outcomes = [dataclasses.asdict(outcome) for outcome in report.outcomes]
    content = {"format": FORMAT, "environment": dict(report.environment), "outcomes": outcomes}
    return json.dumps(content, indent=1)


def from_json(text: str, where: str) -> Report:
    """A report that :func:`to_json` wrote.

    Raises:
        ValueError: it is no such report.
    """
    try:
        content: Any = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        outcomes = tuple(
            Outcome(
                **{
                    **item,
                    "status": Status(item["status"]),
                    "histogram": tuple(item["histogram"]),
                }
            )
            for item in content["outcomes"]
        )
        return Report(dict(content["environment"]), outcomes)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where} is no report of onnx-iron conformance ({error}); --json FILE writes one"
        ) from None


def to_text(report: Report) -> str:
    """The matrix: a line for each subject and dtype, a column for each implementation."""
    cells = report.cells()
    columns = _unique(key[2] for key in cells)
    rows = _unique((key[0], key[1]) for key in cells)
    lines = [f"{chr(ord('A') + i)}  {name}" for i, name in enumerate(columns)]
    width = max((len(subject) for subject, _ in rows), default=0)
    heads = "".join(f"{chr(ord('A') + i):>12}" for i in range(len(columns)))
    lines += ["", f"{'':{width}}  {'':9}{heads}"]
    for subject, dtype in rows:
        texts = (cell_text(cells.get((subject, dtype, column), ())) for column in columns)
        lines.append(f"{subject:{width}}  {dtype:9}" + "".join(f"{text:>12}" for text in texts))
    lines += ["", "passed/run (worst ulps); - declined, each with a reason in the report"]
    for outcome in report.failed:
        lines += ["", f"FAILED {outcome.case}", f"  {outcome.detail}", f"  {reproduction(outcome)}"]
    counted = Counter(outcome.status for outcome in report.outcomes)
    summary = ", ".join(f"{counted[status]} {status.value}" for status in Status)
    return "\n".join([*lines, "", summary])


def cell_text(outcomes: Sequence[Outcome]) -> str:
    """A cell of the matrix in a few letters."""
    run = [o for o in outcomes if o.status is not Status.DECLINED]
    if not run:
        return "-"
    passed = sum(o.status is Status.PASSED for o in run)
    return f"{passed}/{len(run)} ({max(o.worst for o in run)})"


def _unique(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))
