"""Debian sid in a folder, with AMD's NPU stack in it, for the tests of the simulated NPU.

    python tests/npu/chroot.py run -- pytest tests/npu
    python tests/npu/chroot.py run --target npu1 -- onnx-iron doctor

XRT, its NPU driver plug-in and pyxrt are packages of Debian sid. The folder is made once (by
debootstrap, as root, in about two minutes) and kept in the user's cache; its name is a hash of what
is in it. A run mounts the checkout read-only, builds the project's library and the simulated driver
in the folder, and starts the command with the driver preloaded under the unmodified XRT. Where the
environment variable ONNX_IRON_LIBRARY names a library, it is used as it is.

Exit code: the command's; 77 where the folder can't be made here, which counts as skipped.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SUITE = "sid"
PACKAGES = (
    *("ca-certificates", "cmake", "g++", "linux-libc-dev", "ninja-build"),
    *("python3", "python3-venv", "python3-xrt"),
    *("libxrt2", "libxrt-npu2", "libxrt-utils", "libxrt-utils-npu"),
)
WHEELS = (
    *("gguf", "hypothesis", "ml_dtypes", "numpy", "onnx"),
    *("onnxruntime", "pytest", "rich", "scipy"),
)

SKIPPED = 77
CHECKOUT = Path(__file__).resolve().parents[2]
# Paths inside.
SOURCE, PYTHON, BUILDS = (
    Path("/src/onnx-iron"),
    Path("/opt/venv/bin/python"),
    Path("/var/cache/npu"),
)
GIVEN_LIBRARY = Path("/opt/libonnx_iron.so")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# What a command keeps of the caller's environment.
KEPT = ("CI", "HYPOTHESIS_PROFILE", "NPU_DRIVER_DEBUG", "OMP_NUM_THREADS", "TERM")


class NotHereError(Exception):
    """The folder can't be made on this machine, and why."""


# -- making it ------------------------------------------------------------------------------


def recipe() -> str:
    """A hash of what is in the folder."""
    text = json.dumps([SUITE, PACKAGES, WHEELS])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def home() -> Path:
    """Where the folder is, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "onnx-iron" / f"npu-{SUITE}-{recipe()}"


def mirror() -> str:
    """The Debian mirror that apt is set up with.

    Raises:
        NotHereError: there is none.
    """
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    for line in listed.splitlines():
        origin, _, rest = line.partition(" ")
        label, _, address = rest.partition(" ")
        if origin == label == "Debian":
            return address
    raise NotHereError("apt has no Debian mirror set up; name one with --mirror URL")


def make(address: str | None) -> Path:
    """Make the folder where it isn't there yet.

    Raises:
        NotHereError: it can't be made here.
    """
    folder = home()
    if os.geteuid() != 0:
        raise NotHereError("it takes root, for mounts and chroot; run this with sudo")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if (folder / "complete").is_file():
            return folder
        debootstrap = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if debootstrap is None:
            raise NotHereError("debootstrap is not installed; apt install debootstrap")
        address = address or mirror()
        say(f"making {folder} ({len(PACKAGES)} packages of Debian {SUITE}, {len(WHEELS)} wheels)")
        shutil.rmtree(folder, ignore_errors=True)
        step(
            [
                *(debootstrap, "--variant=minbase", f"--include={','.join(PACKAGES)}"),
                *(SUITE, str(folder), address),
            ]
        )
        for name in (Path("/etc/resolv.conf"), CERTIFICATES):
            if name.is_file():
                inside = folder / name.relative_to("/")
                inside.unlink(missing_ok=True)
                shutil.copyfile(name, inside)
        step(
            ["chroot", str(folder), "python3", "-m", "venv", "--system-site-packages", "/opt/venv"]
        )
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", *WHEELS]
        step(["chroot", str(folder), *pip], PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_FIND_LINKS="")
        (folder / "complete").write_text("")
    return folder


def step(command: Sequence[str], **variables: str) -> None:
    """Run a part of the making; its output is shown only where it fails.

    Raises:
        NotHereError: it failed.
    """
    environment = {**os.environ, **variables, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise NotHereError(f"{shlex.join(command[:3])} ... failed:\n  " + "\n  ".join(tail))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock while the block runs."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- running in it --------------------------------------------------------------------------


def run(folder: Path, target: str, command: Sequence[str]) -> int:
    """Run a command inside; returns its exit code."""
    lines = [
        *tmpfs(folder, "dev", "run", "sys", "tmp"),
        *bind(Path("/proc"), folder / "proc", recursive=True),
        *bind(CHECKOUT, folder / SOURCE.relative_to("/")),
        f"mount -o remount,bind,ro {quoted(folder / SOURCE.relative_to('/'))}",
    ]
    for name in DEVICES:
        node = folder / "dev" / name
        lines += [f"touch {quoted(node)}", *bind(Path("/dev") / name, node, make=False)]
    inside = [str(PYTHON), str(SOURCE / "tests/npu/chroot.py"), "inside", "--target", target]
    named = os.environ.get("ONNX_IRON_LIBRARY")
    if named:
        shown = folder / GIVEN_LIBRARY.relative_to("/")
        lines += [f"touch {quoted(shown)}", *bind(Path(named).resolve(), shown, make=False)]
        inside += ["--library", str(GIVEN_LIBRARY)]
    # Another checkout's objects may be newer than this one's sources, and of others.
    inside += ["--builds", hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]]
    lines.append(f"exec chroot {quoted(folder)} {shlex.join([*inside, '--', *command])}")
    script = "\n".join(["set -eu", *lines])
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        env={**environment, **kept},
        check=False,
    )
    return done.returncode


def tmpfs(folder: Path, *names: str) -> list[str]:
    """Shell lines that mount empty memory on folders."""
    return [f"mount -t tmpfs tmpfs {quoted(folder / name)}" for name in names]


def bind(source: Path, to: Path, *, recursive: bool = False, make: bool = True) -> list[str]:
    """Shell lines that show a folder or file in another place."""
    made = [f"mkdir -p {quoted(to)}"] if make else []
    return [*made, f"mount --{'r' if recursive else ''}bind {quoted(source)} {quoted(to)}"]


def quoted(path: Path) -> str:
    """A path for the shell."""
    return shlex.quote(str(path))


def inside(target: str, builds: Path, library: Path | None, command: Sequence[str]) -> int:
    """What a run does once it is in the folder: the machine, the builds, then the command."""
    sys.path.insert(0, str(SOURCE / "tests/npu"))
    from simulator import sysfs

    sysfs.build(Path("/sys"), target)
    sysfs.build_node(Path("/dev/accel/accel0"))
    Path("/dev/shm").mkdir()
    builds.mkdir(parents=True, exist_ok=True)
    with locked(builds / "lock"):
        driver = build(SOURCE / "tests/npu/simulator", builds / "driver", "libnpu_driver.so")
        library = library or build(SOURCE, builds / "project", "libonnx_iron.so")
        kernels, interpreter = designs(target)
    os.chdir(SOURCE)
    environment = {
        **os.environ,
        **settings(target),
        "LD_PRELOAD": str(driver),
        "NPU_DRIVER_INTERPRETER": interpreter,
        "NPU_DRIVER_KERNELS": kernels,
        "ONNX_IRON_LIBRARY": str(library),
        "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
    }
    if command[0] == "pytest":
        command = ["python", "-m", "pytest", "-p", "no:cacheprovider", *command[1:]]
    elif command[0] == "onnx-iron":
        command = ["python", "-m", "onnx_iron.tools.main", *command[1:]]
    found = shutil.which(command[0], path=environment["PATH"]) or command[0]
    os.execve(found, list(command), environment)


def settings(target: str) -> Mapping[str, str]:
    """What a process finds in its environment on the machine with the simulated NPU."""
    return {
        # Every sync is then a request to the driver, which so sees what is carried where. XRT takes
        # a setting from the environment by the name that it has in xrt.ini.
        "Debug.force_driver_sync": "true",
        "NPU_DRIVER_TARGET": target,
        "ONNX_IRON_CACHE": str(BUILDS / "onnx-iron"),
        "ONNX_IRON_NPU_COMPILER": "design_compiler:COMPILER",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{SOURCE}:{SOURCE / 'tests/npu'}",
    }


def designs(target: str) -> tuple[str, str]:
    """Build the kernels for this machine's processor, and the interpreter of designs."""
    cores = {"npu1": "AIE2", "npu2": "AIE2P"}[target]
    program = (
        "from onnx_iron.kernels.aie.build import Generation, interpreter_library, kernel_library; "
        f"print(kernel_library(Generation.{cores})); print(interpreter_library())"
    )
    done = subprocess.run(
        [str(PYTHON), "-c", program],
        env={**os.environ, **settings(target)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    kernels, interpreter = done.stdout.split()
    return kernels, interpreter


def build(source: Path, folder: Path, library: str) -> Path:
    """Build a CMake project, as far as it changed; returns the library."""
    for command in (
        ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(folder)],
        ["cmake", "--build", str(folder)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return next(folder.rglob(library))


# -- command line ---------------------------------------------------------------------------


def say(text: str) -> None:
    """A line on stderr."""
    print(f"chroot: {text}", file=sys.stderr, flush=True)


def split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before a --, and what after it."""
    if "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def main() -> int:
    """Parse the command line and do it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("make", "run", "path", "inside"))
    parser.add_argument("--mirror", metavar="URL", help="of Debian; by default the one apt uses")
    # What a run tells itself.
    parser.add_argument("--builds", default="", help=argparse.SUPPRESS)
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--target", choices=("npu1", "npu2"), default="npu2")
    arguments, command = split(sys.argv[1:])
    given = parser.parse_args(arguments)
    if bool(command) != (given.action in ("run", "inside")):
        parser.error("run takes a command after --, and nothing else does")
    if given.action == "path":
        print(home())
        return 0
    if given.action == "inside":
        return inside(given.target, BUILDS / given.builds, given.library, command)
    try:
        folder = make(given.mirror)
    except NotHereError as error:
        bar = "!" * 88
        say(
            f"\n{bar}\nSKIPPED: the simulated NPU can't be set up here, so NOTHING was tested "
            f"on it.\n{error}\n{bar}"
        )
        return SKIPPED
    if given.action == "make":
        print(folder)
        return 0
    return run(folder, given.target, command)


if __name__ == "__main__":
    sys.exit(main())
