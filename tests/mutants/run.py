"""Breaks the code in known ways, one at a time, and tells which of them the tests notice.

    python tests/mutants/run.py --list
    python tests/mutants/run.py --only "epsilon" --only arena.toml
    python tests/mutants/run.py --jobs 2

The mutants are in the ``.toml`` files beside this one. Each says in words what is broken, which
text of which file becomes what, and which tests are to fail by it. They are applied to a copy of
the checkout with a native library of its own, never to the checkout. First the tests run on the
copy as it is: what fails anyway catches nothing.

Exit code: 0 where every mutant is caught; 1 where one survives, or can't be tried as it is written.
Mutants that only the simulated NPU meets are left out where it can't be set up (see
``tests/npu/chroot.py``), and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
# Of sources that cmake builds into the library; those of the AIE kernels are built by the tests.
NATIVE = ("kernels/cpu/", "provider/native/")
ON_HOST = ("kernels/aie/", "kernels/designs/")
SKIPPED = 77  # chroot.py's
LIMIT = 300
BUILD_ON_HOST = (
    "from onnx_iron.kernels.aie.build import Generation, interpreter_library, kernel_library\n"
    "interpreter_library()\n"
    "for generation in Generation: kernel_library(generation)"
)


class Outcome(StrEnum):
    """What became of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    MOVED = "DOES NOT APPLY"
    BROKEN = "DOES NOT BUILD"
    UNTRIED = "not tried"


@dataclass(frozen=True)
class Mutant:
    """A fault that somebody may make.

    Attributes:
        name: what is broken, in words.
        group: the file that it is listed in, without its ending.
        file: what is changed, by its path in the checkout.
        old: a text that the file has exactly once.
        new: what stands there instead.
        tests: pytest's arguments; one of these tests is to fail.
        conformance: arguments of ``onnx-iron conformance`` that is to fail, instead of tests.
        npu: the simulated NPU that the tests run on, if any.
    """

    name: str
    group: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    conformance: tuple[str, ...] = ()
    npu: str = ""

    @property
    def native(self) -> bool:
        """The native library has to be built anew."""
        return self.file.startswith(NATIVE)

    @property
    def on_host(self) -> bool:
        """The tests build what it changes for the host."""
        return self.file.startswith(ON_HOST) and not self.file.endswith(".py")

    def applied(self, text: str) -> str:
        """The file's text with the fault in it.

        Raises:
            ValueError: the text to replace is not there, or more than once.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.file} has the text to replace {count} times, expected once: the code has "
                f"moved, so move the mutant in tests/mutants/{self.group}.toml:\n{self.old}"
            )
        mutated = text.replace(self.old, self.new)
        if mutated == text:
            raise ValueError(f"tests/mutants/{self.group}.toml: old and new are the same text")
        return mutated


def read_mutants(folder: Path = HERE) -> list[Mutant]:
    """Every mutant of the lists.

    Raises:
        ValueError: one without tests, or two of one name.
    """
    found = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            lists = {key: tuple(entry.pop(key, ())) for key in ("tests", "conformance")}
            mutant = Mutant(group=path.stem, **entry, **lists)
            if bool(mutant.tests) == bool(mutant.conformance):
                raise ValueError(f"{path}: {mutant.name!r} needs tests, or conformance's arguments")
            found.append(mutant)
    twice = [name for name, count in Counter(m.name for m in found).items() if count > 1]
    if twice:
        raise ValueError(f"two mutants have the name {twice[0]!r}")
    return found


def choose(mutants: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    """Those whose name, file or list has one of the texts; all where there is none."""
    return [
        mutant
        for mutant in mutants
        if not only or any(t in f"{mutant.name}\n{mutant.file}\n{mutant.group}.toml" for t in only)
    ]


# -- a copy of the checkout -----------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A process that has ended; its code is None where it was stopped at the time limit."""

    code: int | None
    output: str


class Copy:
    """The checkout's files as they are now, in another folder, with a native library.

    Args:
        folder: where to; it is made.
        library: the library to use where nothing of it is changed; None to build one.
        limit: seconds that a run of tests may take.
    """

    def __init__(self, folder: Path, library: Path | None, limit: float) -> None:
        self.folder, self._limit = folder, limit
        self._build = folder / "build" / "mutants"
        self._library = library or self._build / "libonnx_iron.so"
        self._stale = library is None
        self._running: set[int] = set()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True).stdout
        for name in set(os.fsdecode(names).split("\0")):
            source = CHECKOUT / name
            if name and source.is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / name)

    def build(self) -> Ran:
        """Build the native library as far as its sources changed."""
        if not self._stale:
            return Ran(0, "")
        compiler = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        folders = ["-S", str(self.folder), "-B", str(self._build)]
        made = self._build / "CMakeCache.txt"
        done = Ran(0, "")
        if not made.is_file():
            done = self._run(["cmake", *folders, *generator, *compiler], None)
        if done.code == 0:
            done = self._run(["cmake", "--build", str(self._build)], None)
        self._stale = done.code != 0
        return done

    @contextlib.contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """The copy with a fault in it while the block runs.

        Raises:
            ValueError: the mutant does not fit the file.
        """
        path = self.folder / mutant.file
        text = path.read_text()
        mutated = mutant.applied(text)
        if mutant.file.endswith(".py"):
            compile(mutated, mutant.file, "exec")
        path.write_text(mutated)
        self._stale |= mutant.native
        try:
            yield
        finally:
            path.write_text(text)
            self._stale |= mutant.native

    def test(self, mutant: Mutant) -> Ran:
        """Run what is to catch a mutant, for so long as a run may take."""
        if mutant.conformance:
            return self.conformance(mutant.conformance, self._limit)
        return self.pytest(mutant.tests, mutant.npu, self._limit)

    def conformance(self, arguments: Sequence[str], limit: float | None = None) -> Ran:
        """Run ``onnx-iron conformance``."""
        command = [sys.executable, "-m", "onnx_iron.tools.main", "conformance", *arguments]
        return self._run(command, limit)

    def pytest(self, tests: Sequence[str], npu: str, limit: float | None = None) -> Ran:
        """Run tests until one fails: here, or on a simulated NPU."""
        arguments = ["-x", "--no-header", "-p", "no:cacheprovider", *tests]
        if not npu:
            return self._run([sys.executable, "-m", "pytest", *arguments], limit)
        chroot = [sys.executable, "tests/npu/chroot.py", "run", "--target", npu, "--"]
        return self._run([*chroot, "pytest", *arguments], limit)

    def builds_on_host(self) -> Ran:
        """Build the AIE kernels and the designs' interpreter for this machine."""
        return self._run([sys.executable, "-c", BUILD_ON_HOST], None)

    def stop(self) -> None:
        """End what runs."""
        for number in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)

    def _run(self, command: Sequence[str], limit: float | None) -> Ran:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running.add(process.pid)
        try:
            output, _ = process.communicate(timeout=limit)
            return Ran(process.returncode, output)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Ran(None, process.communicate()[0])
        finally:
            self._running.discard(process.pid)

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "ONNX_IRON_"))}
        return {
            # Objects are the same wherever the copy is.
            "CCACHE_BASEDIR": str(self.folder),
            "CCACHE_NOHASHDIR": "1",
            **kept,
            "ONNX_IRON_CACHE": str(self.folder.parent / "cache"),
            "ONNX_IRON_LIBRARY": str(self._library),
            # A text of the same length, written within the same second, would be taken for the old.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.folder),
        }


# -- trying mutants -------------------------------------------------------------------------


def try_mutant(copy: Copy, mutant: Mutant) -> tuple[Outcome, str]:
    """Break the copy, run the tests; what became of it, and the output that tells why."""
    try:
        with copy.broken(mutant):
            if mutant.native and (built := copy.build()).code != 0:
                return Outcome.BROKEN, built.output
            if mutant.on_host and (built := copy.builds_on_host()).code != 0:
                return Outcome.BROKEN, built.output
            ran = copy.test(mutant)
    except ValueError as error:
        return Outcome.MOVED, str(error)
    except SyntaxError as error:
        return Outcome.BROKEN, str(error)
    return judged(ran, mutant), ran.output


def judged(ran: Ran, mutant: Mutant) -> Outcome:
    """What the end of a run of tests says of a mutant."""
    if ran.code == SKIPPED and mutant.npu:
        return Outcome.UNTRIED
    if ran.code == 0:
        tried = bool(mutant.conformance) or " passed" in ran.output
        return Outcome.SURVIVED if tried else Outcome.UNTRIED
    # pytest ends with 1 where a test fails; with others where it finds none, or can't import them.
    if ran.code in (2, 3, 4, 5) and not mutant.conformance:
        return Outcome.BROKEN
    return Outcome.CAUGHT


def fails_anyway(copy: Copy, mutants: Sequence[Mutant]) -> str:
    """The output of the mutants' tests where they fail without a mutant; else an empty text."""
    tests: dict[str, list[str]] = {}
    for mutant in mutants:
        tests.setdefault(mutant.npu, []).extend(mutant.tests)
    runs = [copy.pytest(sorted(set(names)), npu) for npu, names in tests.items() if names]
    runs += [copy.conformance(given) for given in {m.conformance for m in mutants} if given]
    return next((ran.output for ran in runs if ran.code not in (0, SKIPPED)), "")


def try_all(
    mutants: Sequence[Mutant],
    folder: Path,
    *,
    jobs: int = 1,
    limit: float = LIMIT,
    library: Path | None = None,
    tell: Callable[[Mutant, Outcome, float, str], None] = lambda *told: None,
) -> dict[str, Outcome]:
    """Try mutants on copies of the checkout.

    Args:
        mutants: which.
        folder: where the copies go.
        jobs: how many copies, each of which tries one at a time.
        limit: seconds for one run of tests.
        library: the checkout's native library, for mutants that leave it as it is.
        tell: called with each mutant, what became of it, its seconds and the tests' output.

    Returns:
        What became of each, by its name.

    Raises:
        RuntimeError: the copy does not build, or the tests fail on it without a mutant.
    """
    # Cheap ones first; those of one file after each other: what is built for one is half of the
    # next one's.
    left: queue.Queue[Mutant] = queue.Queue()
    for mutant in sorted(mutants, key=lambda m: (m.on_host, m.native, m.file)):
        left.put(mutant)
    outcomes: dict[str, Outcome] = {}
    told = threading.Lock()

    def work(copy: Copy) -> None:
        while True:
            try:
                mutant = left.get_nowait()
            except queue.Empty:
                return
            begun = time.monotonic()
            outcome, output = try_mutant(copy, mutant)
            with told:
                outcomes[mutant.name] = outcome
                tell(mutant, outcome, time.monotonic() - begun, output)

    copies = [Copy(folder / str(number), library, limit) for number in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for built in pool.map(Copy.build, copies):
                if built.code != 0:
                    raise RuntimeError(f"the copy of the checkout does not build:\n{built.output}")
            if failure := fails_anyway(copies[0], mutants):
                raise RuntimeError(f"the tests fail without a mutant:\n{failure}")
            list(pool.map(work, copies))
        except BaseException:
            while not left.empty():
                left.get_nowait()
            for copy in copies:
                copy.stop()
            raise
    return outcomes


# -- command line ---------------------------------------------------------------------------


def main() -> int:
    """Parse the command line and try mutants; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="A list's name is a file's, as arena.toml."
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="mutants whose name, file or list has TEXT; may be given again",
    )
    parser.add_argument("--list", action="store_true", help="name them, and try none")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="copies that work at once")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help="for the tests of one mutant; what takes longer is caught (default: %(default)s)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print the end of the tests' output for each mutant"
    )
    given = parser.parse_args()
    if given.jobs < 1:
        parser.error(f"--jobs is {given.jobs}, expected 1 or more")
    mutants = choose(read_mutants(), given.only)
    if not mutants:
        parser.error(f"no mutant's name, file or list has any of {given.only}")
    if given.list:
        for mutant in mutants:
            print(f"{mutant.group:10} {mutant.name}\n{'':10} {mutant.file}: {_command(mutant)}")
        return 0
    print(f"{len(mutants)} mutants; copying, building and running their tests as they are")
    done = 0

    def tell(mutant: Mutant, outcome: Outcome, seconds: float, output: str) -> None:
        nonlocal done
        done += 1
        print(f"{done:3}/{len(mutants)} {outcome:14} {seconds:6.1f} s  {mutant.name}", flush=True)
        if outcome is Outcome.SURVIVED:
            print(f"{'':12}{mutant.file}: not noticed by {_command(mutant)}")
        if given.verbose or outcome in (Outcome.MOVED, Outcome.BROKEN):
            print("\n".join(f"{'':12}{line}" for line in output.strip().splitlines()[-15:]))

    with tempfile.TemporaryDirectory(prefix="onnx-iron-mutants-") as folder:
        try:
            outcomes = try_all(mutants, Path(folder), jobs=given.jobs, limit=given.limit, tell=tell)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    counts = Counter(outcomes.values())
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]))
    return int(any(counts[bad] for bad in (Outcome.SURVIVED, Outcome.MOVED, Outcome.BROKEN)))


def _command(mutant: Mutant) -> str:
    if mutant.conformance:
        return f"onnx-iron conformance {shlex.join(mutant.conformance)}"
    where = f"chroot.py run --target {mutant.npu} -- " if mutant.npu else ""
    return f"{where}pytest {shlex.join(mutant.tests)}"


if __name__ == "__main__":
    sys.exit(main())
