"""The CPU kernels' instruction sets, each in a process of its own: a library takes one for good."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, Any

from onnx_iron.conformance.case import Case
from onnx_iron.conformance.implementations.base import (
    Declined,
    Implementation,
    Inapplicable,
    Results,
)
from onnx_iron.kernels import cpu_path

PATHS = ("portable", "avx2", "avx512", "avx512bf16")
_SERVE = "from onnx_iron.conformance.cpu_paths import serve; serve()"


@dataclass(frozen=True)
class OnPath:
    """An implementation in a process whose CPU kernels take a path."""

    path: str
    inner: Implementation

    @property
    def name(self) -> str:
        """The report's column."""
        return self.inner.name

    def run(self, case: Case) -> Results:
        return _child(self.path).run(self.inner, case)


@functools.cache
def other_paths() -> tuple[str, ...]:
    """The paths that this processor has and this process did not take."""
    return tuple(path for path in PATHS if path != cpu_path() and _child(path).takes_its_path())


def serve() -> None:
    """Answer requests from stdin on stdout, until it ends: the child's whole program."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = function(*arguments)
        except Exception as error:
            answer = _Raised(type(error).__name__, str(error))
        pickle.dump(answer, answers)
        answers.flush()


@dataclass(frozen=True)
class _Raised:
    """An exception of the child's; as text, for not every one can be sent."""

    kind: str
    text: str


class _Child:
    """A process on a path; it starts when it is first asked, and again where it has died."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None

    def takes_its_path(self) -> bool:
        """Whether this processor runs it."""
        try:
            return bool(self._ask(cpu_path) == self._path)
        except RuntimeError:
            return False

    def run(self, implementation: Implementation, case: Case) -> Results:
        """Run a case.

        Raises:
            Declined, Inapplicable: as the implementation does.
            RuntimeError: it raised something else, or the process died.
        """
        results: Results = self._ask(_run, implementation, case)
        return results

    def _ask(self, function: Any, *arguments: Any) -> Any:
        process = self._started()
        requests, answers = _pipes(process)
        try:
            pickle.dump((function, arguments), requests)
            requests.flush()
            answer = pickle.load(answers)
        except (EOFError, BrokenPipeError):
            self._process = None
            raise RuntimeError(
                f"the process with ONNX_IRON_CPU={self._path} ended with exit code {process.wait()}"
            ) from None
        if isinstance(answer, _Raised):
            for known in (Declined, Inapplicable):
                if answer.kind == known.__name__:
                    raise known(answer.text)
            raise RuntimeError(f"{answer.kind}: {answer.text}")
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            modules = os.pathsep.join(path or os.getcwd() for path in sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"ONNX_IRON_CPU": self._path, "PYTHONPATH": modules},
            )
        return self._process


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


@functools.cache
def _child(path: str) -> _Child:
    return _Child(path)


def _run(implementation: Implementation, case: Case) -> Results:
    return implementation.run(case)
