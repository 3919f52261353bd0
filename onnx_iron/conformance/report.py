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
from typing import Any, TypeAlias

from onnx_iron.conformance.runner import Outcome, Status

FORMAT = "onnx_iron.conformance.1"
_PACKAGES = ("onnx-iron", "onnxruntime", "onnx", "numpy", "ml_dtypes", "scipy")

# Outcomes by subject, dtype and implementation.
Cells: TypeAlias = dict[tuple[str, str, str], list[Outcome]]


@dataclass(frozen=True)
class Report:
    """Outcomes, where and when they were found, and how many of each status there were, also of
    those that are left out.
    """

    environments: tuple[Mapping[str, str], ...]
    outcomes: tuple[Outcome, ...]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, environments: Sequence[Mapping[str, str]], outcomes: Iterable[Outcome]) -> Report:
        """A report of all outcomes."""
        made = tuple(outcomes)
        return cls(tuple(environments), made, Counter(o.status.value for o in made))

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes that are failures."""
        return [outcome for outcome in self.outcomes if outcome.status is Status.FAILED]

    @property
    def summary(self) -> str:
        """The counts in words."""
        shown = [s for s in Status if s is not Status.INAPPLICABLE or self.counts.get(s.value)]
        return ", ".join(f"{self.counts.get(s.value, 0)} {s.value}" for s in shown)

    def cells(self) -> Cells:
        """The outcomes of each subject, dtype and implementation."""
        found: Cells = {}
        for outcome in self.outcomes:
            key = outcome.subject, outcome.dtype, outcome.implementation
            found.setdefault(key, []).append(outcome)
        return found

    def only_failed(self) -> Report:
        """The failures alone, and the counts of all."""
        return dataclasses.replace(self, outcomes=tuple(self.failed))

    def merged(self, others: Iterable[Report]) -> Report:
        """With the outcomes of other runs, on other machines or versions.

        Of a case that several runs have for one implementation the first failure is kept, else the
        first of them.
        """
        reports = [self, *others]
        kept: dict[tuple[str, str], Outcome] = {}
        for outcome in (o for report in reports for o in report.outcomes):
            key = outcome.case, outcome.implementation
            known = kept.setdefault(key, outcome)
            if outcome.status is Status.FAILED and known.status is not Status.FAILED:
                kept[key] = outcome
        return Report.of([e for r in reports for e in r.environments], kept.values())


def environment() -> dict[str, str]:
    """Versions, machine and date."""
    found = {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")}
    found["machine"] = f"{platform.system()} {platform.machine()}, {_processor()}"
    found["python"] = platform.python_version()
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
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
    return f"onnx-iron conformance --case {shlex.quote(outcome.case)} {outcome.arguments}"


def to_json(report: Report) -> str:
    """The report for a machine."""
    content = {
        "format": FORMAT,
        "environments": [dict(e) for e in report.environments],
        "counts": dict(report.counts),
        "outcomes": [dataclasses.asdict(outcome) for outcome in report.outcomes],
    }
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
        return Report(tuple(dict(e) for e in content["environments"]), outcomes, content["counts"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where} is no report of onnx-iron conformance ({error}); --json FILE writes one"
        ) from None


def to_text(report: Report) -> str:
    """The matrix, a line for each subject and dtype, a column for each implementation; then the
    failures.
    """
    cells = report.cells()
    columns = list(dict.fromkeys(key[2] for key in cells))
    rows = list(dict.fromkeys((key[0], key[1]) for key in cells))
    lines = [f"{number:3}  {name}" for number, name in enumerate(columns, 1)]
    width = max((len(subject) for subject, _ in rows), default=0)
    heads = "".join(f"{number:12}" for number in range(1, len(columns) + 1))
    lines += ["", f"{'':{width}}  {'':9}{heads}"]
    for subject, dtype in rows:
        texts = (cell_text(cells.get((subject, dtype, column), ())) for column in columns)
        lines.append(f"{subject:{width}}  {dtype:9}" + "".join(f"{text:>12}" for text in texts))
    lines += [
        "",
        "passed/run (worst ulps); * with known differences, - declined, nothing where it does "
        "not apply: --report says why",
    ]
    for outcome in report.failed:
        lines += ["", f"FAILED {outcome.case}", f"  {outcome.implementation}: {outcome.detail}"]
        lines += [f"  {reproduction(outcome)}"]
    return "\n".join([*lines, "", report.summary])


def cell_text(outcomes: Sequence[Outcome]) -> str:
    """A cell of the matrix in a few letters."""
    run = [o for o in outcomes if o.status in (Status.PASSED, Status.FAILED)]
    if not run:
        return "-" if any(o.status is Status.DECLINED for o in outcomes) else ""
    passed = sum(o.status is Status.PASSED for o in run)
    mark = "*" if any(o.status is Status.PASSED and o.detail for o in run) else ""
    return f"{passed}/{len(run)} ({max(o.worst for o in run)}){mark}"
