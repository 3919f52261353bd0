"""``onnx-iron export``: a checkpoint to ONNX files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_iron.tools.options import (
    Subparsers,
    add_export_options,
    check_folder,
    folder,
    positive,
    sizes,
    writing_to,
)

if TYPE_CHECKING:
    from onnx_iron.models.checkpoint import Checkpoint


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "export",
        parents=[common],
        help="export a checkpoint to ONNX",
        description="Write prefill.onnx, decode.onnx (of an encoder, model.onnx or encoder.onnx), "
        "the weights that they share and the tokenizer, and print the files' paths.",
    )
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a Hugging Face folder (config.json, safetensors, tokenizer.json), or a GGUF file",
    )
    parser.add_argument(
        "directory", type=folder, nargs="?", metavar="OUT_DIR", help="made if it isn't there"
    )
    parser.add_argument(
        "-o", "--output", type=folder, metavar="OUT_DIR", help="the same, as an option"
    )
    add_export_options(parser)
    parser.add_argument(
        "--logits",
        choices=("last", "all"),
        default="last",
        help="of the prompt's last token, or of all of them (default: %(default)s)",
    )
    parser.add_argument(
        "--batch",
        type=positive,
        metavar="B",
        help="run B sequences of one length at once, ids (B, tokens), with states of their own and "
        "one position (default: one sequence, ids (tokens,))",
    )
    parser.add_argument(
        "--dialect",
        choices=("iron", "standard"),
        default="iron",
        help="operators of the domain onnx_iron with function bodies, or ONNX's own wherever "
        "there is one (default: %(default)s)",
    )
    parser.add_argument(
        "--state-dtype",
        choices=("bfloat16", "float32"),
        help="of the states at the model's inputs and outputs; float32 for InferenceSession.run, "
        "which takes no bfloat16 arrays (default: that of --dtype)",
    )
    parser.add_argument(
        "--genai",
        action="store_true",
        help="also write model.onnx, on the same weights, and genai_config.json, which "
        "onnxruntime-genai drives",
    )
    parser.add_argument(
        "--genai-provider",
        choices=("iron", "stock"),
        default="iron",
        help="what genai_config.json names: our provider, or none (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Export, and print the paths of the files written.

    Raises:
        ValueError: The checkpoint or an option can't be used.
        OSError: The files can't be read or written.
    """
    # What reads checkpoints comes with the extra [demo].
    from onnx_iron.models.checkpoint import open_checkpoint
    from onnx_iron.models.exported import export_checkpoint
    from onnx_iron.models.kept_files import TOKENIZERS
    from onnx_iron.tools.progress import note, size, stage

    directory = arguments.directory or arguments.output
    if directory is None or (arguments.directory and arguments.output):
        raise ValueError("give one folder to write to: onnx-iron export MODEL -o OUT_DIR")
    check_folder(directory)
    checkpoint = open_checkpoint(arguments.model)
    chosen = sizes(arguments, checkpoint.config.context_length, checkpoint.family)
    with writing_to(directory), stage("Exporting") as report:
        written = export_checkpoint(
            checkpoint,
            directory,
            dtype=arguments.dtype,
            context=chosen.context,
            chunk=chosen.chunk,
            logits=arguments.logits,
            batch=arguments.batch,
            dialect=arguments.dialect,
            state_dtype=arguments.state_dtype,
            genai=arguments.genai_provider if arguments.genai else None,
            progress=report,
        )
    for path in written.files:
        print(path)
    if checkpoint.family.generates and not any(path.name in TOKENIZERS for path in written.files):
        note(
            f"{arguments.model} has no {TOKENIZERS[0]}: the export runs, but generate and chat "
            "need it"
        )
    if checkpoint.left_out:
        note(_left_out(checkpoint))
    note(f"{len(written.files)} files, {size(written.total_bytes)}")


def _left_out(checkpoint: Checkpoint) -> str:
    """Which tensors an export has not, and that this is meant."""
    prefix, count = checkpoint.family.prefix, len(checkpoint.left_out)
    parts = {name.removeprefix(prefix).partition(".")[0] for name in checkpoint.left_out}
    return (
        f"{count} tensors of {' and '.join(sorted(parts))} are left out: of a model of type "
        f"{checkpoint.family.model_type}, the encoder alone is exported"
    )
