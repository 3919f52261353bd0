"""What may be wrong with a model's weights file, in words."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from onnx_iron.export.identity import EXPORT_KEY, WEIGHTS_KEY, recorded, sample_digest
from onnx_iron.export.metadata import read_json, unreadable


def check_weights(
    model: Path, loaded: onnx.ModelProto | None = None, *, whole: bool = False
) -> None:
    """Check that a model's weights files are there, long enough, and those it was exported with.

    Of each tensor a few blocks are read; with ``whole``, all of the file.

    Args:
        loaded: the model as :func:`load_model` gave it, where it is read already.

    Raises:
        FileNotFoundError: a weights file is not there.
        ValueError: the model is no ONNX file, or a weights file is too short or another one.
    """
    loaded = load_model(model) if loaded is None else loaded
    for tensor in loaded.graph.initializer:
        if not uses_external_data(tensor):
            continue
        info = external_data(tensor, model)
        file = model.parent / info.location
        if not file.is_file():
            raise FileNotFoundError(
                f"{model} keeps its weights in {info.location!r}, which is not beside it"
            )
        end = (info.offset or 0) + (info.length or 0)
        size = file.stat().st_size
        if size < end:
            raise ValueError(
                f"{file} has {size} bytes, {model.name} needs {end} of it (for {tensor.name!r}); "
                "the copy is cut short"
            )
    text = recorded(loaded, WEIGHTS_KEY)
    if text is None:
        return
    expected = read_json(text, WEIGHTS_KEY, str(model))
    if not isinstance(expected, dict):
        raise unreadable(
            str(model), WEIGHTS_KEY, f"{reprlib.repr(expected)}, expected an object of digests"
        )
    if sample_digest(loaded, model.parent) != expected.get("sampled"):
        raise ValueError(_other(model))
    if whole:
        for name in sorted(_files(loaded)):
            with (model.parent / name).open("rb") as data:
                if hashlib.file_digest(data, "sha256").hexdigest() != expected.get("sha256"):
                    raise ValueError(_other(model))


def external_data(tensor: onnx.TensorProto, model: Path) -> ExternalDataInfo:
    """Where a tensor's bytes are.

    Raises:
        ValueError: the model says it in another way than ONNX has it.
    """
    where = {entry.key: entry.value for entry in tensor.external_data}
    for key in ("offset", "length"):
        number = where.get(key, "0")
        if not (number.isascii() and number.isdecimal() and int(number[:20]) < 1 << 63):
            raise ValueError(
                f"{model}: the {key} of {tensor.name!r} in its weights file is {number[:40]!r}, "
                "expected a number of bytes"
            )
    location = where.get("location", "")
    path = Path(location)
    if not location or "\0" in location or path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{model}: {tensor.name!r} is in the file {location[:80]!r}, expected the name of one "
            "beside the model"
        )
    return ExternalDataInfo(tensor)


def check_together(models: Mapping[Path, onnx.ModelProto]) -> None:
    """Check that models of one folder, those that record an export, were exported together.

    Raises:
        ValueError: they were not.
    """
    found = {model: recorded(loaded, EXPORT_KEY) for model, loaded in models.items()}
    exports = {model: export for model, export in found.items() if export is not None}
    if len(set(exports.values())) > 1:
        names = " and ".join(model.name for model in exports)
        raise ValueError(
            f"Session: {names} are not of one export; export them again in one call, or open one "
            "of them by its path"
        )


def _other(model: Path) -> str:
    return (
        f"{model.name} was exported with other weights than those beside it: an export that was "
        "ended half-way, or files of two models in one folder; export the model again"
    )


def _files(model: onnx.ModelProto) -> set[str]:
    return {
        ExternalDataInfo(tensor).location
        for tensor in model.graph.initializer
        if uses_external_data(tensor)
    }


def load_model(model: Path) -> onnx.ModelProto:
    """A model without its external weights.

    Raises:
        ValueError: it is no ONNX file.
    """
    try:
        loaded = onnx.load(str(model), load_external_data=False)
    except Exception as error:  # protobuf's own classes vary
        raise ValueError(f"{model} is no ONNX model ({error})") from None
    if not loaded.HasField("graph"):
        raise ValueError(f"{model} is no ONNX model: it has no graph; export the model again")
    return loaded
