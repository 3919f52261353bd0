"""What an export writes for onnxruntime-genai, and what of it a later one takes away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnx_iron.export.identity import recorded
from onnx_iron.export.metadata import DRIVER
from onnx_iron.graph.trace import Trace
from onnx_iron.models.checkpoint import Checkpoint
from onnx_iron.models.decoder import Decoder, Shape
from onnx_iron.models.genai.interface import GENAI
from onnx_iron.models.genai.rows import rows_trace
from onnx_iron.models.kept_files import GENAI as GENAI_CONFIG

# The version's name, and the file's without its ending.
NAME = "model"
PROVIDERS = ("iron", "stock")


@dataclass(frozen=True)
class Driven:
    """A version of a model for genai, and the files that it reads beside it."""

    trace: Trace
    files: Mapping[str, bytes]


def for_genai(
    checkpoint: Checkpoint, graph: Any, shape: Shape, dialect: str, provider: str
) -> Driven:
    """A decoder's.

    Raises:
        ValueError: genai's interface has no place for what the model keeps, or for an option.
    """
    if provider not in PROVIDERS:
        raise ValueError(f"genai is {provider!r}, expected one of {PROVIDERS}")
    if dialect != "iron":
        raise ValueError(
            f"dialect is {dialect!r}, and the model for onnxruntime-genai has operators of the "
            "domain; leave it out"
        )
    if shape.batch is not None:
        raise ValueError(
            f"batch is {shape.batch}, and the model for onnxruntime-genai takes any; leave it out"
        )
    kind = checkpoint.family.model_type
    if not isinstance(graph, Decoder):
        raise ValueError(_no_place(kind, "it is no decoder with a cache of keys and values"))
    trace = rows_trace(graph, shape.logits)
    if trace.states:
        kept = ", ".join(sorted(trace.states)[:2])
        raise ValueError(_no_place(kind, f"it keeps more than keys and values ({kept}, ...)"))
    # They take the package tokenizers, which other exports do without.
    from onnx_iron.models.genai.config import genai_config
    from onnx_iron.models.genai.tokenizer_files import tokenizer_files

    config = genai_config(checkpoint, f"{NAME}.onnx", shape.context, provider)
    return Driven(trace, {GENAI_CONFIG: config, **tokenizer_files(checkpoint)})


def _no_place(kind: str, why: str) -> str:
    return f"a model of type {kind} can't be driven by onnxruntime-genai: {why}; leave genai out"


def leftover(folder: Path) -> list[str]:
    """The files of an earlier export for genai, which no other export may leave there."""
    config, model = folder / GENAI_CONFIG, folder / f"{NAME}.onnx"
    if not config.is_file() or not model.is_file():
        return []
    try:
        loaded = onnx.load(str(model), load_external_data=False)
    except DecodeError:  # somebody else's
        return []
    return [config.name, model.name] if recorded(loaded, DRIVER) == GENAI else []
