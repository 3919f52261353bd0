"""Traced graphs written as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from onnx_iron.dtypes import FLOATS, as_dtype
from onnx_iron.export import weights as external
from onnx_iron.export.folder import put_in_place, staged
from onnx_iron.export.identity import check_others, identify, identify_export, orphaned
from onnx_iron.export.model import Options, build_model
from onnx_iron.export.schemas import register_schemas
from onnx_iron.export.shared import shared_weights
from onnx_iron.export.weights import Progress
from onnx_iron.graph.graph import Graph
from onnx_iron.graph.trace import Trace

# A model and the trace that it is of, to the model that is written.
Finish: TypeAlias = Callable[[onnx.ModelProto, Trace], onnx.ModelProto]

# onnx's checker and shape inference know the domain from here on.
register_schemas()


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote.

    Attributes:
        files: the models, then the weights file.
        total_bytes: their sizes in sum.
    """

    files: list[Path]
    total_bytes: int


def export(
    traces: Trace | Mapping[str, Trace],
    path: str | Path,
    *,
    dialect: str = "iron",
    io_dtype: Any = np.float32,
    state_dtype: Any = np.float32,
    metadata: Mapping[str, str] | None = None,
    files: Mapping[str, bytes | None] | None = None,
    finish: Mapping[str, Finish] | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write a trace as ``path`` (an .onnx file), or several as ``path/<name>.onnx``.

    Several versions of a graph share one weights file. Weights are loaded and written one by one.
    The bytes written depend on the traces alone. An export that fails, or is interrupted, leaves
    what was there before; one that is killed leaves that too, or models that don't open for want of
    their weights. Another export to the same folder waits.

    Args:
        traces: one trace, or versions of a graph by name (a prefill chunk, a decode step).
        path: the model's file, or the folder of the versions; its parents are made.
        dialect: "iron" writes the domain's operators, each with a function body of standard ones;
            "standard" writes standard operators only, for other providers' optimisers.
        io_dtype: the dtype of float inputs and outputs, with casts at the boundary; None keeps the
            graph's. ``InferenceSession.run`` takes no bfloat16 arrays.
        state_dtype: the same for states.
        metadata: further entries for the model's metadata.
        files: what goes with the model (a tokenizer), by name, to be replaced with it; None for a
            file of an earlier export that must not stay, a model's too.
        finish: what a version's model becomes before it is written, by the version's name.
        progress: called with bytes done, bytes in all and the name of what is written.

    Raises:
        ValueError: an unknown dialect, no trace, a name that is no file's, metadata that is no
            text, versions whose weights or states differ under one name, or another model in the
            folder that uses the weights file.
        TypeError: something that is no trace.
        OSError: a file that can't be written.
        RuntimeError: a weight's load, or progress, exports to the same folder.
    """
    if dialect not in ("iron", "standard"):
        raise ValueError(f"export(): dialect is {dialect!r}; expected 'iron' or 'standard'")
    options = Options(dialect, _float_or_none(io_dtype), _float_or_none(state_dtype))
    path = Path(path)
    if isinstance(traces, Trace):
        folder, data = path.parent, f"{path.stem}.weights"
        models = {path.name: traces}
    elif isinstance(traces, Mapping):
        folder, data = path, "weights.bin"
        models = {_file_name(name): trace for name, trace in traces.items()}
    else:
        raise TypeError(_no_trace("traces", traces))
    if not models:
        raise ValueError("export(): no trace was given")
    for name in files or {}:
        if name in models or name == data or Path(name).name != name or name.startswith("."):
            raise ValueError(f"export(): files has {name!r}; expected a file name of its own")
    for name, trace in models.items():
        if not isinstance(trace, Trace):
            raise TypeError(_no_trace(f"the version {name.removesuffix('.onnx')}", trace))
    if data in models:
        raise ValueError(f"export(): a model can't be named {data}: its weights are")
    shared = shared_weights(models)
    placed = external.place(shared, data)
    # All that can be refused is refused before a file is written.
    built = {
        name: build_model(trace, Path(name).stem, placed, options, _texts(metadata))
        for name, trace in models.items()
    }
    for version, finished in (finish or {}).items():
        name = _file_name(version)
        built[name] = finished(built[name], models[name])
    for model in built.values():
        model.SerializeToString()
    others = dict(files or {})
    gone = [name for name, content in others.items() if content is None]
    with staged(folder) as stage:
        written = external.write(stage / data, shared, placed, progress) if placed else None
        if written is not None:
            identify(built.values(), written)
            check_others(folder, data, {*models, *gone}, written)
        identify_export(built, written)
        for name, model in built.items():
            (stage / name).write_bytes(model.SerializeToString(deterministic=True))
        for name, content in others.items():
            if content is not None:
                (stage / name).write_bytes(content)
        new = [*models, *(name for name, content in others.items() if content is not None)]
        new += [data] if placed else []
        total = sum((stage / name).stat().st_size for name in new)
        gone += [data] if not placed and orphaned(folder, data, set(models)) else []
        put_in_place(stage, folder, new, gone)
    return ExportReport([folder / name for name in new], total)


def _no_trace(what: str, given: Any) -> str:
    remedy = "; trace it first: graph.trace(x=(shape, dtype))" if isinstance(given, Graph) else ""
    return (
        f"export(): {what} is a {type(given).__name__}; expected a trace, or a mapping of names to "
        f"traces such as {{'prefill': trace, 'decode': trace}}{remedy}"
    )


def _file_name(name: Any) -> str:
    """The file of a version. The name is a file's, in the folder and nowhere else."""
    if (
        not isinstance(name, str)
        or not name
        or name.startswith(".")
        or any(c in "/\\" or ord(c) < 32 for c in name)
        or len(os.fsencode(name)) > 200
    ):
        raise ValueError(
            f"export(): a version is named {name!r}; expected the name of a file without its "
            "ending, such as 'decode': no separators or control characters, no dot in front, 200 "
            "bytes at the most"
        )
    return f"{name}.onnx"


def _texts(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Metadata that a model can hold."""
    for key, text in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"export(): metadata {key!r} is {text!r}; keys and values are strings")
        for part in (key, text):
            try:
                part.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"export(): metadata {key!r} is {text!r}; it must be text that UTF-8 can write"
                ) from None
    return dict(metadata or {})


def _float_or_none(dtype: Any) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    wanted = as_dtype(dtype)
    if wanted not in FLOATS:
        raise ValueError(f"export(): {wanted.name} is no float dtype; expected float32 or bfloat16")
    return wanted


__all__ = ["ExportReport", "Progress", "export", "register_schemas"]
