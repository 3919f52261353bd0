"""Files of saved states: a .npz with a header, read without trusting what it declares."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnx_iron.dtypes import BFLOAT16, Array, DType, Spec

FORMAT = "onnx_iron.states.1"
_HEADER_BYTES = 1 << 24
_MOST_POSITION = 2**31 - 1

# What zipfile, numpy's reader and json raise over a damaged file.
_DAMAGE = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class OtherStatesError(ValueError):
    """The file is whole, and its states are not the model's."""


def write_saved(path: Path, states: Mapping[str, Array], position: int) -> None:
    """Write states by name; bfloat16 as its 16 bits."""
    stored: dict[str, Any] = {
        f"state:{name}": array.view(_stored(array.dtype)) for name, array in states.items()
    }
    specs = {name: Spec(array.shape, array.dtype) for name, array in states.items()}
    header = {"format": FORMAT, "position": position, "states": _described(specs)}
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **stored)


def read_saved(path: Path, specs: Mapping[str, Spec]) -> tuple[int, dict[str, Array]]:
    """The position and the states, of just these names and types.

    No more is read, and no more memory taken, than these states have.

    Raises:
        OSError: the file can't be opened.
        ValueError: another kind of file, a damaged one, or states of other names or types.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                position, described = _header(archive)
                _check_same(described, _described(specs), path)
                arrays = {name: _state(archive, name, spec) for name, spec in specs.items()}
        except OtherStatesError:
            raise
        except _DAMAGE as error:
            why = str(error) or type(error).__name__
            raise ValueError(
                f"{path} holds no states of onnx-iron, or is damaged ({why}); give a file that "
                "Session.save wrote"
            ) from None
    return position, arrays


def _header(archive: zipfile.ZipFile) -> tuple[int, Mapping[str, Any]]:
    with archive.open("header.npy") as file:
        shape, dtype = _declared(file)
        if shape != () or dtype.kind != "U" or not 0 < dtype.itemsize <= _HEADER_BYTES:
            raise ValueError(f"its header is {dtype} {shape}")
        text = str(np.frombuffer(_exactly(file, dtype.itemsize), dtype)[0])
    header = json.loads(text)
    position, states = header["position"], header["states"]
    if header["format"] != FORMAT:
        raise ValueError(f"format is {header['format']!r}, expected {FORMAT!r}")
    if type(position) is not int or not 0 <= position <= _MOST_POSITION:
        raise ValueError(f"position is {position!r}, expected 0..{_MOST_POSITION}")
    if not isinstance(states, dict):
        raise ValueError("its header has no states")
    return position, states


def _state(archive: zipfile.ZipFile, name: str, spec: Spec) -> Array:
    with archive.open(f"state:{name}.npy") as file:
        shape, dtype = _declared(file)
        if (shape, dtype) != (spec.shape, _stored(spec.dtype)):
            raise ValueError(f"state {name!r} is stored as {dtype} {shape}, expected {spec}")
        data = _exactly(file, spec.bytes)
    return np.frombuffer(data, spec.dtype).reshape(spec.shape)


def _declared(file: Any) -> tuple[tuple[int, ...], DType]:
    """The shape and the dtype at the head of a .npy file."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"an array of format {version}, expected (1, 0)")
    shape, in_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if in_fortran_order and len(shape) > 1:
        raise ValueError("an array in Fortran's order")
    return shape, dtype


def _exactly(file: Any, size: int) -> bytes:
    # One byte more, so that the archive comes to its end and checks its sum.
    data: bytes = file.read(size + 1)
    if len(data) != size:
        raise ValueError(f"it ends after {len(data)} bytes of {size}, or goes on after them")
    return data


def _stored(dtype: DType) -> DType:
    return np.dtype(np.uint16) if dtype == BFLOAT16 else dtype


def _described(specs: Mapping[str, Spec]) -> dict[str, Any]:
    """States' dtypes and shapes for JSON."""
    return {name: [spec.dtype.name, *spec.shape] for name, spec in specs.items()}


def _check_same(found: Mapping[str, Any], expected: Mapping[str, Any], where: Path) -> None:
    """Refuse states that differ, naming the first that does."""
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise OtherStatesError(
                f"{where}: state {name!r} is {_text(found.get(name))}, "
                f"this model's is {_text(expected.get(name))}"
            )


def _text(item: Any) -> str:
    return "absent" if item is None else f"{item[0]} {tuple(item[1:])}"
