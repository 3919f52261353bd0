"""The files of a GGUF model: one, or the numbered parts that a large one is split into."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_iron.models.gguf_header import Header, read_header

COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
_MOST_PARTS = 65535
_NAME = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.gguf", re.DOTALL)


@dataclass(frozen=True)
class Parts:
    """A whole model.

    Attributes:
        header: The first file's metadata, and the tensors of all files.
        data: The bytes of the file that a tensor is in, by the tensor's name.
    """

    header: Header
    data: Mapping[str, npt.NDArray[np.uint8]]


def read_parts(path: Path) -> Parts:
    """Read a file's header, and those of the further parts beside it where it is the first.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file is not a whole GGUF file; a part is missing or belongs elsewhere.
    """
    data = _map(path)
    header = read_header(data.data, str(path))
    count = _number(header.metadata, COUNT, 1, path) or 1
    number = _number(header.metadata, NUMBER, 0, path)
    if number:
        raise ValueError(
            f"{path}: {NUMBER} is {number}, expected 0, the first of {count} parts; give that "
            "one's path"
        )
    tensors, places = dict(header.tensors), dict.fromkeys(header.tensors, data)
    for number in range(1, count):
        part, bytes_, beside = _read_part(path, number, count, header.metadata)
        for name, info in beside.tensors.items():
            if name in tensors:
                raise ValueError(f"{part}: tensor {name!r} is in an earlier part too")
            tensors[name], places[name] = info, bytes_
    if count > 1 or TENSORS in header.metadata:
        expected = header.metadata.get(TENSORS)
        if type(expected) is not int or expected != len(tensors):
            raise ValueError(
                f"{path}: {TENSORS} is {expected!r}, and {count} part(s) hold {len(tensors)} "
                "tensors; expected as many, download the model again"
            )
    return Parts(Header(header.metadata, tensors), places)


def _read_part(
    first: Path, number: int, count: int, metadata: Mapping[str, Any]
) -> tuple[Path, npt.NDArray[np.uint8], Header]:
    """Read a further part, and hold what it says of itself against the first."""
    name = _NAME.fullmatch(first.name)
    if name is None or (int(name[2]), int(name[3])) != (1, count):
        raise ValueError(
            f"{first}: {COUNT} is {count}, expected a file named "
            f"NAME-00001-of-{count:05d}.gguf with the other parts beside it; give it its name back"
        )
    path = first.with_name(f"{name[1]}-{number + 1:05d}-of-{count:05d}.gguf")
    if not path.is_file():
        raise ValueError(
            f"{first}: {COUNT} is {count}, and {path} is missing; expected all parts in one folder"
        )
    data = _map(path)
    header = read_header(data.data, str(path))
    for key, value in {**header.metadata, NUMBER: number, COUNT: count}.items():
        has = header.metadata.get(key)
        if key in (NUMBER, COUNT) and has != value:
            raise ValueError(f"{path}: {key} is {has!r}, expected {value}, as its name says")
        if (
            not key.startswith("split.")
            and key != "general.alignment"
            and (value != metadata.get(key))
        ):
            raise ValueError(
                f"{path}: metadata key {key!r} is not as in {first}, expected the same"
            )
    return path, data, header


def _number(metadata: Mapping[str, Any], key: str, default: int, path: Path) -> int:
    value = metadata.get(key, default)
    if type(value) is not int or not 0 <= value <= _MOST_PARTS:
        raise ValueError(f"{path}: {key} is {value!r}, expected 0..{_MOST_PARTS}")
    return value


def _map(path: Path) -> npt.NDArray[np.uint8]:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; give the path of a GGUF file")
    if not path.is_file():
        raise ValueError(f"{path}: not a file; give the path of a GGUF file")
    if not path.stat().st_size:
        raise ValueError(f"{path}: the file is empty, expected a GGUF file; download it again")
    # As a plain array: slices of a memmap carry its bookkeeping along.
    return np.asarray(np.memmap(path, np.uint8, mode="r"))
