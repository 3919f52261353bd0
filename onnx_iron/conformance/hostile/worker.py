"""A process that hostile cases run in, with bounds on its memory and time; it may die of them."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from onnx_iron.conformance.hostile.case import HostileCase, write
from onnx_iron.conformance.hostile.verdict import Judged, Verdict, judge
from onnx_iron.native import library_path

MOST_BYTES = 6 << 30
SECONDS = 20.0
# What sanitizers slow down.
_SANITIZED_SECONDS = 120.0
_START_SECONDS = 300.0
_SERVE = "from onnx_iron.conformance.hostile.worker import serve; serve({number}, {bounded})"
_REPORT = re.compile(r"(?:ERROR: |(?:[\w./-]+:\d+:\d+: )?runtime error: |SUMMARY: )[^\n]*")


@dataclass(frozen=True)
class _Request:
    folder: Path
    feeds: dict[str, Any]
    strides: dict[str, str]
    ambiguous: bool
    stages: tuple[str, ...]


class Worker:
    """Runs cases one after another; where one ends the process, the next gets a new one."""

    def __init__(self) -> None:
        self._sanitizers = _sanitizers(library_path())
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._said: IO[bytes] | None = None

    def run(self, case: HostileCase) -> list[Judged]:
        """Every stage's verdict; a crash and a hang are faults of the stage that they happen in."""
        judged: list[Judged] = []
        with tempfile.TemporaryDirectory() as folder:
            write(case, Path(folder))
            left = stages()
            while left:
                done, fault = self._ask(case, Path(folder), left)
                judged += done
                left = left[len(done) :] if done else left
                if fault is None:
                    return judged
                stage, left = left[0], left[1:]
                first = judged[0] if judged else None
                # What plain onnxruntime does by itself is not ours to mend.
                own = first is None or (first.verdict, first.words) == (Verdict.ENDED, fault)
                judged.append(Judged(stage, Verdict.ENDED if own else Verdict.FAULT, fault))
        return judged

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._connection is not None
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._said is not None:
            self._said.close()

    def _ask(
        self, case: HostileCase, folder: Path, left: tuple[str, ...]
    ) -> tuple[list[Judged], str | None]:
        connection = self._started()
        draft = case.draft
        connection.send(_Request(folder, draft.feeds, draft.strides, draft.ambiguous, left))
        done: list[Judged] = []
        seconds = _SANITIZED_SECONDS if self._sanitizers else SECONDS
        try:
            for _ in left:
                if not connection.poll(seconds):
                    self.close()
                    return done, f"it took more than {seconds:.0f} seconds"
                done.append(connection.recv())
        except (EOFError, OSError):
            return done, self._died()
        return done, None

    def _died(self) -> str:
        assert self._process is not None
        assert self._said is not None
        code = self._process.wait()
        self._said.seek(0)
        said = _REPORT.findall(self._said.read().decode(errors="replace"))
        self.close()
        return f"the process ended with {code}" + (f": {'; '.join(said[:2])}" if said else "")

    def _wait_until_ready(self) -> None:
        """What the start of a process takes is no case's time.

        Raises:
            RuntimeError: it does not start.
        """
        assert self._connection is not None
        assert self._said is not None
        try:
            if self._connection.poll(_START_SECONDS):
                self._connection.recv()
                return
        except (EOFError, OSError):
            pass  # it has ended, and said why
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")[-2000:]
        self.close()
        raise RuntimeError(f"the process for hostile cases does not start: {said}")

    def _started(self) -> Connection[Any, Any]:
        if self._process is None:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            ours, its = socket.socketpair()
            modules = os.pathsep.join(path or os.getcwd() for path in sys.path)
            environment = os.environ | {"PYTHONPATH": modules, **self._sanitizers}
            serve = _SERVE.format(number=its.fileno(), bounded=not self._sanitizers)
            self._process = subprocess.Popen(
                [sys.executable, "-c", serve],
                pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=environment,
            )
            its.close()
            self._connection = Connection(ours.detach())
            self._wait_until_ready()
        assert self._connection is not None
        return self._connection


def serve(number: int, bounded: bool) -> None:
    """Answer requests at a socket's descriptor until it is closed: the process's whole program."""
    from onnx_iron.conformance.hostile.originals import strided
    from onnx_iron.conformance.hostile.stages import Attempt, Given, attempt

    if bounded:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection: Connection[Any, Any] = Connection(number)
    connection.send("ready")
    while True:
        try:
            request: _Request = connection.recv()
        except (EOFError, OSError):
            return
        feeds = {n: strided(request.strides.get(n, ""), a) for n, a in request.feeds.items()}
        given = Given(request.folder, feeds)
        # What stock made is not kept where it ended the process.
        against = Attempt(error="builtins.SystemExit", text="plain onnxruntime ends the process")
        for stage in request.stages:
            made = attempt(stage, given)
            if stage == stages()[0]:
                against = made
                connection.send(Judged(stage, Verdict.REFUSED if made.error else Verdict.AGREES))
            else:
                connection.send(judge(stage, made, against, request.ambiguous))


def stages() -> tuple[str, ...]:
    """The stages in order; the first is plain onnxruntime, and what it does is no fault of ours."""
    from onnx_iron.conformance.hostile.stages import STAGES

    return tuple(STAGES)


def _sanitizers(library: Path) -> dict[str, str]:
    """The environment that a library built with sanitizers asks for; empty for others."""
    if b"libasan.so" not in library.read_bytes():
        return {}
    found = [
        subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb={8 << 10}",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
