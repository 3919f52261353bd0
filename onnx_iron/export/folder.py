"""A folder that takes one export at a time, which appears in it whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_STAGE = ".onnx-iron-export"
_LOCK = ".onnx-iron-export.lock"

# The folders that the exports in progress around this call write to: waiting for one would never
# end.
_held: ContextVar[frozenset[Path]] = ContextVar("onnx_iron_export", default=frozenset())


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder in ``folder`` to write to, empty at first and gone afterwards. Another
    export to ``folder``, of this process or of another, waits until then; what one that was
    killed left behind is removed. A folder that was made for it and stays empty goes too.

    Raises:
        RuntimeError: an export to ``folder`` that has not ended asks for this one.
    """
    made = not folder.exists()
    held = _held.get()
    if folder.resolve() in held:
        raise RuntimeError(
            f"export(): this call comes from an export to {folder} that has not ended (a weight's "
            "load, or progress); export to another folder, or afterwards"
        )
    lock = _locked(folder / _LOCK)
    stage = folder / _STAGE
    token = _held.set(held | {folder.resolve()})
    try:
        if stage.exists():
            shutil.rmtree(stage)
        stage.mkdir()
        yield stage
    finally:
        _held.reset(token)
        shutil.rmtree(stage, ignore_errors=True)
        (folder / _LOCK).unlink(missing_ok=True)
        os.close(lock)
        if made and not any(folder.iterdir()):
            with suppress(OSError):  # another export has come
                folder.rmdir()


def _locked(path: Path) -> int:
    """The descriptor of a lock file that is locked and still there under its name."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # an export that failed has removed the folder
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # who held it before has removed the file


def put_in_place(stage: Path, folder: Path, new: Sequence[str], gone: Sequence[str] = ()) -> None:
    """Move what an export wrote from ``stage`` to ``folder``, and away what must not stay.

    The last of the new files, the weights where there are some, is taken away first and put in
    place last: in between no model opens, so that none is ever seen with what belongs to another.

    Raises:
        OSError: a file can't be moved; what was there before is there again.
    """
    names = [*gone, *new]
    for name in names:
        if (folder / name).is_dir():
            raise IsADirectoryError(f"export(): {folder / name} is a folder; remove it")
    kept = stage / "before"
    kept.mkdir()
    try:
        for name in reversed(names):
            if (folder / name).exists():
                (folder / name).replace(kept / name)
        for name in new:
            (stage / name).replace(folder / name)
    except BaseException:
        for name in reversed(new):
            if (kept / name).exists() or not (stage / name).exists():
                (folder / name).unlink(missing_ok=True)
        for name in names:
            if (kept / name).exists():
                (kept / name).replace(folder / name)
        raise
