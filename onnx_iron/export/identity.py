"""Which weights a model was exported with: recorded in its metadata, compared when it is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from onnx_iron.export.weights import Written, sampled

WEIGHTS_KEY = "onnx_iron.weights"
EXPORT_KEY = "onnx_iron.export"


def identify(models: Iterable[onnx.ModelProto], written: Written) -> None:
    """Record in each model the size and the digests of the weights file."""
    for model in models:
        digest = hashlib.sha256()
        for tensor in model.graph.initializer:
            if uses_external_data(tensor):
                info = ExternalDataInfo(tensor)
                offset, length = info.offset or 0, info.length or 0
                _add(digest, tensor.name, offset, length, written.samples[offset])
        _record(
            model,
            WEIGHTS_KEY,
            json.dumps(
                {"bytes": written.size, "sampled": digest.hexdigest(), "sha256": written.sha256}
            ),
        )


def identify_export(models: Mapping[str, onnx.ModelProto], written: Written | None) -> None:
    """Record in each model a digest of all that is exported together."""
    digest = hashlib.sha256(written.sha256.encode() if written else b"")
    for name, model in models.items():
        digest.update(name.encode() + b"\0")
        digest.update(model.SerializeToString(deterministic=True))
    for model in models.values():
        _record(model, EXPORT_KEY, digest.hexdigest())


def recorded(model: onnx.ModelProto, key: str) -> str | None:
    """An entry of a model's metadata."""
    return next((entry.value for entry in model.metadata_props if entry.key == key), None)


def sample_digest(model: onnx.ModelProto, folder: Path) -> str:
    """The digest of samples of a model's weights as they are in the file."""
    digest = hashlib.sha256()
    for tensor in model.graph.initializer:
        if not uses_external_data(tensor):
            continue
        info = ExternalDataInfo(tensor)
        offset, length = info.offset or 0, info.length or 0
        sample = hashlib.sha256()
        with (folder / info.location).open("rb") as file:
            for begin, end in sampled(length):
                file.seek(offset + begin)
                sample.update(file.read(end - begin))
        _add(digest, tensor.name, offset, length, sample.digest())
    return digest.hexdigest()


def check_others(folder: Path, data: str, replaced: set[str], written: Written) -> None:
    """No other model in the folder has its weights in the file that is about to be replaced.

    Raises:
        ValueError: one has, and other weights than those written.
    """
    for file, model in _users(folder, data):
        text = recorded(model, WEIGHTS_KEY)
        if file.name not in replaced and (
            text is None or json.loads(text).get("sha256") != written.sha256
        ):
            raise ValueError(
                f"export(): {file} keeps other weights in {data}, which would be replaced; remove "
                "it, or export to another folder"
            )


def orphaned(folder: Path, data: str, replaced: set[str]) -> bool:
    """A weights file is used by models that are about to be replaced, and by no others."""
    users = {file.name for file, _ in _users(folder, data)}
    return bool(users) and users <= replaced


def _users(folder: Path, data: str) -> Iterator[tuple[Path, onnx.ModelProto]]:
    """The models in a folder that have weights in a file of it."""
    if not (folder / data).exists():
        return
    for file in sorted(folder.glob("*.onnx")):
        if not file.is_file():
            continue
        try:
            model = onnx.load(str(file), load_external_data=False)
        except DecodeError:  # no model
            continue
        if any(
            uses_external_data(tensor) and ExternalDataInfo(tensor).location == data
            for tensor in model.graph.initializer
        ):
            yield file, model


def _add(digest: Any, name: str, offset: int, length: int, sample: bytes) -> None:
    digest.update(f"{name}\0{offset}\0{length}\0".encode() + sample)


def _record(model: onnx.ModelProto, key: str, text: str) -> None:
    entries = {entry.key: entry.value for entry in model.metadata_props} | {key: text}
    onnx.helper.set_model_props(model, {k: entries[k] for k in sorted(entries)})
