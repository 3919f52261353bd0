"""Traced graphs written as ONNX models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnx_iron.dtypes import FLOATS, as_dtype
from onnx_iron.export import weights as external
from onnx_iron.export.model import Options, build_model
from onnx_iron.export.schemas import register_schemas
from onnx_iron.export.weights import Progress
from onnx_iron.graph.handle import Weight
from onnx_iron.graph.trace import Trace

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
    progress: Progress | None = None,
) -> ExportReport:
    """Write a trace as ``path`` (an .onnx file), or several as ``path/<name>.onnx``.

    Several versions of a graph share one weights file. Weights are loaded and written one by one.
    The bytes written depend on the traces alone.

    Args:
        traces: one trace, or versions of a graph by name (a prefill chunk, a decode step).
        path: the model's file, or the folder of the versions; its parents are made.
        dialect: "iron" writes the domain's operators, each with a function body of standard ones;
            "standard" writes standard operators only, for other providers' optimisers.
        io_dtype: the dtype of float inputs and outputs, with casts at the boundary; None keeps the
            graph's. ``InferenceSession.run`` takes no bfloat16 arrays.
        state_dtype: the same for states.
        metadata: further entries for the model's metadata.
        progress: called with bytes done, bytes in all and the name of what is written.

    Raises:
        ValueError: an unknown dialect, no trace, or versions whose weights or states differ under
            one name.
    """
    if dialect not in ("iron", "standard"):
        raise ValueError(f"export(): dialect is {dialect!r}; expected 'iron' or 'standard'")
    options = Options(dialect, _float_or_none(io_dtype), _float_or_none(state_dtype))
    path = Path(path)
    if isinstance(traces, Trace):
        models = {path: traces}
        data = path.with_name(f"{path.stem}.weights")
    else:
        models = {path / f"{name}.onnx": trace for name, trace in traces.items()}
        data = path / "weights.bin"
    if not models:
        raise ValueError("export(): no trace was given")
    shared = _shared_weights(models)
    data.parent.mkdir(parents=True, exist_ok=True)
    placed = external.place(shared, data.name)
    total, files = 0, list(models)
    if placed:
        total += external.write(data, shared, placed, progress)
        files.append(data)
    for file, trace in models.items():
        model = build_model(trace, file.stem, placed, options, metadata or {})
        serialized = model.SerializeToString(deterministic=True)
        file.write_bytes(serialized)
        total += len(serialized)
    return ExportReport(files, total)


def _shared_weights(models: Mapping[Path, Trace]) -> dict[str, Weight]:
    """The weights of all versions in the order of their first use."""
    weights: dict[str, Weight] = {}
    states: dict[str, tuple[Any, ...]] = {}
    for trace in models.values():
        for name, weight in trace.weights.items():
            if not external.same(weights.setdefault(name, weight), weight):
                raise ValueError(f"export(): the versions have different weights named {name}")
        for name, state in trace.states.items():
            spec = (state.shape, state.dtype)
            if states.setdefault(name, spec) != spec:
                raise ValueError(f"export(): the versions have different states named {name}")
    return weights


def _float_or_none(dtype: Any) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    wanted = as_dtype(dtype)
    if wanted not in FLOATS:
        raise ValueError(f"export(): {wanted.name} is no float dtype; expected float32 or bfloat16")
    return wanted


__all__ = ["ExportReport", "Progress", "export", "register_schemas"]
