"""The search for faults: many cases in worker processes, and each fault made small."""

from __future__ import annotations

import queue
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnx_iron.conformance.hostile.case import HostileCase, Plan, make, number_of_changes, save
from onnx_iron.conformance.hostile.verdict import Judged, Verdict
from onnx_iron.conformance.hostile.worker import Worker, stages

# Told how many cases are done, and how many faults there are.
Progress = Callable[[int, int], None]
# What differs between two faults of one kind: paths, names, numbers.
_PARTICULAR = re.compile(r"/tmp/\S*|'[^']*'|\"[^\"]*\"|\d+")


@dataclass(frozen=True)
class Fault:
    """A case that does what no case may, made as small as its plan allows."""

    plan: Plan
    case: HostileCase
    judged: Judged

    @property
    def kind(self) -> str:
        """What faults of one cause have in common."""
        return f"{self.judged.stage}: {_PARTICULAR.sub('#', self.judged.words)[:120]}"


@dataclass
class Findings:
    """What a search found.

    Attributes:
        counts: cases by stage and verdict.
        faults: one of each kind.
        alike: how many cases showed each kind.
        stricter: of refusals of what plain onnxruntime runs, one of each kind.
    """

    counts: Counter[tuple[str, Verdict]] = field(default_factory=Counter)
    faults: dict[str, Fault] = field(default_factory=dict)
    alike: Counter[str] = field(default_factory=Counter)
    stricter: dict[str, Fault] = field(default_factory=dict)

    def add(self, plan: Plan, case: HostileCase, judged: Sequence[Judged]) -> list[Fault]:
        """Count a case; returns the faults of kinds that are new."""
        new = []
        for found in judged:
            self.counts[found.stage, found.verdict] += 1
            fault = Fault(plan, case, found)
            if found.verdict is Verdict.STRICTER:
                self.stricter.setdefault(fault.kind, fault)
            if found.verdict is Verdict.FAULT:
                self.alike[fault.kind] += 1
                if fault.kind not in self.faults:
                    self.faults[fault.kind] = fault
                    new.append(fault)
        return new

    def table(self) -> str:
        """The counts, a line for each stage."""
        names = [v for v in Verdict if any(key[1] is v for key in self.counts)]
        rows = [["", *(name.value for name in names)]]
        for stage in stages():
            rows.append([stage, *(str(self.counts[stage, name]) for name in names)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *others in rows:
            cells = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
            lines.append("  ".join((first.ljust(widths[0]), *cells)))
        return "\n".join(lines)


def search(
    seeds: Sequence[int], jobs: int = 1, progress: Progress | None = None, keep: Path | None = None
) -> Findings:
    """Try the cases of seeds.

    Args:
        jobs: worker processes at once.
        keep: a folder for the case of each kind of fault.
    """
    findings, lock = Findings(), threading.Lock()
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    failed: list[BaseException] = []

    def work() -> None:
        worker = Worker()
        try:
            while not failed:
                try:
                    plan = Plan(waiting.get_nowait())
                except queue.Empty:
                    return
                with lock:  # protobuf and the generator are Python: threads would not help
                    case = make(plan)
                judged = worker.run(case)
                with lock:
                    new = findings.add(plan, case, judged)
                for fault in new:
                    small = smaller(fault, worker)
                    with lock:
                        findings.faults[fault.kind] = small
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        save(small.case, keep / file_name(small))
                if progress is not None:
                    with lock:
                        progress(len(seeds) - waiting.qsize(), len(findings.faults))
        except BaseException as error:
            failed.append(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(max(jobs, 1))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # an interruption ends the workers too
        failed.append(error)
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    return findings


def smaller(fault: Fault, worker: Worker) -> Fault:
    """The same kind of fault by fewer of its changes: one, or all but those that may go."""
    kept = tuple(range(number_of_changes(fault.plan.seed)))
    for tried in ((place,) for place in kept):
        found = _again(fault, tried, worker)
        if found is not None:
            return found
    for place in kept:
        found = _again(fault, tuple(p for p in kept if p != place), worker)
        if found is not None:
            assert found.plan.changes is not None
            fault, kept = found, found.plan.changes
    return fault


def _again(fault: Fault, changes: tuple[int, ...], worker: Worker) -> Fault | None:
    plan = Plan(fault.plan.seed, changes)
    case = make(plan)
    for judged in worker.run(case):
        found = Fault(plan, case, judged)
        if judged.verdict is Verdict.FAULT and found.kind == fault.kind:
            return found
    return None


def file_name(fault: Fault) -> str:
    """The name of the file that keeps a fault's case: its stage, and what seed it is of."""
    changes = "" if fault.plan.changes is None else "_" + "_".join(map(str, fault.plan.changes))
    return f"{fault.judged.stage.replace(' ', '_')}_{fault.plan.seed}{changes}.zip"
