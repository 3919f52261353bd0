"""Traces of what sessions opened with the option ``profile`` did, while they go on."""

from __future__ import annotations

import os
from pathlib import Path

from onnx_iron.native import call, encode_exactly, library


def write_profile(path: str | Path) -> None:
    """Write what is recorded so far to the file that sessions were opened with as ``profile``.

    It is written as the last of them ends in any case, or the process does; recording goes on.

    Raises:
        ValueError: no open session records there, or the file can't be written.
    """
    call(library().onnx_iron_profile_write, encode_exactly(os.fspath(path)))
