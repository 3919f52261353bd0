"""Options that several subcommands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from onnx_iron.models.family import Family

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

CONTEXT, CHUNK = 1024, 64
# Tables as long as the context are made at export, and threads at once: no typing error, and no
# model that claims to be made for more, shall fill the memory.
MAX_CONTEXT, MAX_THREADS = 1 << 20, 1024


def positive(text: str) -> int:
    """Parse an integer of at least 1, as argparse's ``type``."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 1 or more")
    return value


def threads(text: str) -> int:
    """Parse a number of threads, as argparse's ``type``."""
    value = positive(text)
    if value > MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{text!r} is not in 1..{MAX_THREADS}")
    return value


def folder(text: str) -> Path:
    """Parse a folder's path, as argparse's ``type``."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no path of a folder")
    return Path(text)


def check_folder(path: Path) -> None:
    """Refuse, before there is anything to write, a folder that can't be one.

    Raises:
        ValueError: The path, or one above it, is a file or a link to nothing.
        PermissionError: It can't be written to.
    """
    nearest = next((place for place in (path, *path.parents) if os.path.lexists(place)), path)
    if not nearest.is_dir():
        raise ValueError(f"{path}: {nearest} is not a folder; give another to write the files to")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path}: {nearest} can't be written to; give another folder to write the files to"
        )


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """An error of a write says where it was, which the system's own does not."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides how a model is exported."""
    parser.add_argument(
        "--dtype",
        choices=("bfloat16", "float32"),
        default="bfloat16",
        help="of weights, keys, values and every step's result (default: %(default)s)",
    )
    parser.add_argument(
        "--context",
        type=positive,
        metavar="N",
        help=f"tokens that the cache holds, prompt and answer together (default: {CONTEXT}, or "
        "what the model was made for if that is less); an encoder's longest input",
    )
    parser.add_argument(
        "--chunk",
        type=positive,
        metavar="N",
        help=f"tokens of the prompt that one run takes (default: {CHUNK}, or the context if that "
        "is less)",
    )


@dataclass(frozen=True)
class Sizes:
    """The cache's length, and how much of a prompt one run takes, both in tokens."""

    context: int
    chunk: int


def sizes(arguments: argparse.Namespace, trained: int, family: Family) -> Sizes:
    """Fill in what the command line leaves open, for a model made for ``trained`` tokens.

    Raises:
        ValueError: The context is longer than the model's or any, or the chunk than the context;
            a chunk for a model that takes a text as a whole, a context for one without a cache.
    """
    if family.endless and arguments.context:
        raise ValueError(
            f"--context is {arguments.context}, but a model of type {family.model_type} keeps no "
            "cache, and texts of any length have room; leave it out"
        )
    context = arguments.context or (trained if family.whole else min(CONTEXT, trained))
    if context > trained:
        raise ValueError(
            f"--context is {context}, expected 1..{trained}, what the model was made for"
        )
    if context > MAX_CONTEXT:
        raise ValueError(f"--context is {context}, expected 1..{MAX_CONTEXT}")
    if not family.generates:
        if arguments.chunk is not None:
            raise ValueError(
                f"--chunk is {arguments.chunk}, but a model of type {family.model_type} takes its "
                "input as a whole, of --context positions; leave it out"
            )
        return Sizes(context, context)
    chunk = arguments.chunk or min(CHUNK, context)
    if not 2 <= chunk <= context:
        raise ValueError(f"--chunk is {chunk}, expected 2..{context}, the context")
    return Sizes(context, chunk)
