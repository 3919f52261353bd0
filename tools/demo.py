"""``onnx-iron demo``: a small language model from download to answer."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_iron.tools.options import (
    Subparsers,
    add_export_options,
    check_folder,
    folder,
    positive,
    sizes,
    threads,
    writing_to,
)
from onnx_iron.tools.talk import open_session

if TYPE_CHECKING:
    from onnx_iron import Session
    from onnx_iron.export import ExportReport
    from onnx_iron.models.generation import Generation
    from onnx_iron.models.text import Text

PROMPT = "Explain in a few sentences why the sky is blue."


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "demo",
        parents=[common],
        help="download a small language model, export it and let it answer",
        description="Export SmolLM2-135M-Instruct, or another model, and answer a prompt "
        "with it. The answer goes to stdout, everything else to stderr.",
    )
    parser.add_argument("--prompt", default=PROMPT, metavar="TEXT", help="(default: %(default)s)")
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=200,
        metavar="N",
        help="tokens that the answer has at most (default: %(default)s)",
    )
    add_export_options(parser)
    parser.add_argument(
        "--provider",
        choices=("iron", "stock"),
        default="iron",
        help="our execution provider, or onnxruntime alone (default: %(default)s)",
    )
    parser.add_argument(
        "--model", type=Path, metavar="MODEL", help="a GGUF file or a folder to use instead"
    )
    parser.add_argument(
        "--keep", type=folder, metavar="DIR", help="write the ONNX files there and keep them"
    )
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="(default: onnxruntime's choice)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Download, export, open and answer; print the answer as it comes, then a summary.

    Raises:
        ValueError: The checkpoint, the prompt or an option can't be used.
        OSError: A file can't be read or written.
        RuntimeError: The download or a run fails.
    """
    # The demo's packages come with the extra [demo].
    from onnx_iron.models.checkpoint import open_checkpoint
    from onnx_iron.models.exported import export_checkpoint
    from onnx_iron.models.generation import Stop, check_prompt, generate
    from onnx_iron.models.sampling import Sampler
    from onnx_iron.models.text import Settings
    from onnx_iron.tools.download import smollm2
    from onnx_iron.tools.progress import note, stage

    if arguments.keep is not None:
        check_folder(arguments.keep)
    path = arguments.model
    if path is None:
        with stage("Getting the model") as report:
            path = smollm2(report)
    checkpoint = open_checkpoint(path)
    if not checkpoint.family.generates:
        raise ValueError(
            f"{path} holds a model of type {checkpoint.family.model_type}, which generates no "
            "text; export it with onnx-iron export"
        )
    chosen = sizes(arguments, checkpoint.config.context_length, checkpoint.family)
    text = checkpoint.text()
    tokenizer = text.tokenizer
    prompt = _prompt(arguments.prompt, text)
    check_prompt(prompt, chosen.context)

    with _directory(arguments.keep) as directory:
        with writing_to(directory), stage("Exporting") as report:
            written = export_checkpoint(
                checkpoint,
                directory,
                dtype=arguments.dtype,
                context=chosen.context,
                chunk=chosen.chunk,
                progress=report,
            )
        with stage("Opening the session"):
            session = open_session(directory, arguments)
        decoder = tokenizer.stream()

        def emit(token: int) -> None:
            sys.stdout.write(decoder.feed(token))
            sys.stdout.flush()

        answer = generate(
            session,
            prompt,
            max_tokens=arguments.max_tokens,
            context=chosen.context,
            end_ids=tokenizer.eos_ids,
            emit=emit,
            sampler=Sampler(Settings(), known=tokenizer.ids()),
        )
        print(decoder.finish(), flush=True)
        if answer.stop is Stop.CONTEXT:
            note(f"The context of {chosen.context} tokens is full; raise it with --context.")
        _summarise(answer, written, session, arguments)


def _prompt(prompt: str, text: Text) -> list[int]:
    """The ids of the prompt as one user's message, or as it is where there is no template."""
    from onnx_iron.tools.progress import note

    if text.template is None:
        note("The model has no chat template: it continues the prompt as it is.")
        return text.tokenizer.encode(prompt, add_bos=True, special=False)
    return text.template.encode([{"role": "user", "content": prompt}], text.tokenizer)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="onnx-iron-") as scratch:
        yield Path(scratch)


def _summarise(
    answer: Generation, written: ExportReport, session: Session, arguments: argparse.Namespace
) -> None:
    from onnx_iron.tools.progress import size, summary

    rate = answer.tokens_per_second
    kept = str(arguments.keep) if arguments.keep else "none; --keep DIR keeps them"
    summary(
        "Summary",
        [
            ("decode", f"{rate:.1f} tokens/s" if rate else "no steps"),
            ("time to first token", f"{answer.first_token_seconds * 1e3:.0f} ms"),
            ("prompt", f"{answer.prompt_tokens} tokens"),
            ("answer", f"{len(answer.ids)} tokens; {answer.stop.value}"),
            ("model on disk", f"{size(written.total_bytes)} ({arguments.dtype})"),
            *_placement(session),
            ("files kept", kept),
        ],
    )


def _placement(session: Session) -> Iterator[tuple[str, str]]:
    """A row for each model: how many of its nodes run where."""
    for role, placement in session.placement().items():
        counts = placement.to_dict()["counts"].items()
        yield f"{role} nodes", ", ".join(f"{count} on {where}" for where, count in counts)
