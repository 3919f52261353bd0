"""JSON files from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 28


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no JSON object.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, expected {_MOST_BYTES} at most")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file ({error}); download it again") from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{path} holds a {type(value).__name__}, expected an object; download it again"
        )
    return value


def read_object_if_there(path: Path) -> dict[str, Any]:
    """The object in a file, empty where there is no file."""
    return read_object(path) if path.is_file() else {}
