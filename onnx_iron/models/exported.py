"""A checkpoint as ONNX files, with what it takes to talk to them from the folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx_iron.dtypes import FLOAT32, as_dtype
from onnx_iron.export import ExportReport, Progress, export
from onnx_iron.models.checkpoint import Checkpoint
from onnx_iron.models.decoder import Shape
from onnx_iron.models.family import ENDLESS
from onnx_iron.models.genai.driven import NAME, for_genai, leftover
from onnx_iron.models.genai.interface import with_interface
from onnx_iron.models.kept_files import GGUF, HUGGINGFACE
from onnx_iron.models.text import Text


def export_checkpoint(
    checkpoint: Checkpoint,
    directory: str | Path,
    *,
    dtype: Any = "bfloat16",
    context: int = 1024,
    chunk: int = 64,
    logits: str = "last",
    batch: int | None = None,
    dialect: str = "iron",
    state_dtype: Any = None,
    genai: str | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write a model's graphs and their shared weights, its tokenizer, chat template and settings.

    A decoder becomes ``prefill.onnx`` (a chunk of rows) and ``decode.onnx`` (one), an encoder
    ``model.onnx``. States are of the weights' dtype where not said otherwise: a session keeps them
    in place.

    Args:
        checkpoint: see :func:`onnx_iron.models.checkpoint.open_checkpoint`.
        directory: made where it is missing.
        dtype: float32 or bfloat16, of the weights and of every step's result.
        context: the cache's length, or the most rows of an encoder's call; of a family without a
            cache no bound.
        chunk: the rows of a prefill call; 1 for a model of decode steps alone.
        logits: "last" or "all" rows of a prefill chunk.
        batch: B, how many sequences of one length each call runs, ids (B, rows); None for one
            alone, ids (rows,).
        dialect: see :func:`onnx_iron.export`.
        state_dtype: the states' at the boundary: float32 for ``InferenceSession.run``, which takes
            no bfloat16 arrays; None keeps ``dtype``.
        genai: also write what onnxruntime-genai drives, ``model.onnx``, on the same weights, and
            genai_config.json: "iron" names our provider there, "stock" none; None for neither file.
        progress: see :func:`onnx_iron.export`.

    Raises:
        ValueError: a chunk below 1 or longer than the context, a batch below 1, a checkpoint
            whose tensors are not those that its configuration asks for, a directory that holds a
            checkpoint, or a model or an option that genai's interface has no place for.
        OSError: a file that can't be read or written.
    """
    directory = Path(directory)
    _check_apart(directory)
    weights = checkpoint.weights(as_dtype(dtype))
    generates = checkpoint.family.generates
    shape = Shape(context, chunk if generates else context, logits, batch)
    graph = checkpoint.family.build(checkpoint.config, weights, shape)
    checkpoint.check_all_used(weights)
    rows = ENDLESS if checkpoint.family.endless else context
    traces, finish = graph.traces(), {}
    others: dict[str, bytes | None] = dict.fromkeys((*HUGGINGFACE, GGUF))
    others |= checkpoint.files()
    if genai is not None:
        driven = for_genai(checkpoint, graph, shape, dialect, genai)
        traces, finish = {**traces, NAME: driven.trace}, {NAME: with_interface}
        others |= driven.files
    else:
        others |= dict.fromkeys(name for name in leftover(directory) if name[:-5] not in traces)
    return export(
        traces,
        directory,
        dialect=dialect,
        io_dtype=FLOAT32,
        state_dtype=state_dtype,
        metadata={
            **({"onnx_iron.context": str(rows)} if generates else {"onnx_iron.whole": "true"}),
            **({} if batch is None else {"onnx_iron.batch": str(batch)}),
            "onnx_iron.model_type": checkpoint.family.model_type,
        },
        files=others,
        finish=finish,
        progress=progress,
    )


def _check_apart(folder: Path) -> None:
    """Refuse a folder that holds a checkpoint, whose configuration and tokenizer an export would
    replace or remove.

    Raises:
        ValueError: it does.
    """
    found = sorted(file.name for file in folder.glob("*.safetensors"))
    if not any(folder.glob("*.onnx")):
        found += [name for name in HUGGINGFACE if (folder / name).exists()]
    if found:
        raise ValueError(
            f"{folder} holds a checkpoint ({found[0]}), whose files the export would replace; give "
            "another folder to write to, one below it say"
        )


def text_of(folder: Path) -> Text:
    """The tokenizer of an exported folder, and what goes with it.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: it can't be read.
    """
    # What reads text needs more packages than what writes models.
    if (folder / GGUF).is_file():
        from onnx_iron.models.gguf_text import unpacked

        return unpacked(folder)
    from onnx_iron.models.huggingface_text import huggingface_text

    return huggingface_text(folder)
