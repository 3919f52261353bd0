"""``onnx-iron chat``: a conversation with an exported model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onnx_iron.tools.options import Subparsers
from onnx_iron.tools.talk import Talker, add_sampling_options, add_session_options, summarise

_HELP = "/reset begins anew, /undo takes the last exchange back, /exit or Ctrl-D ends."


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "chat",
        parents=[common],
        help="talk to an exported model",
        description="A conversation with a model that onnx-iron export has written; what was said "
        f"stays in its states. {_HELP}",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="as export writes it")
    parser.add_argument("--system", metavar="TEXT", help="what the model is to be")
    parser.add_argument("--timings", action="store_true", help="say how long each answer took")
    add_sampling_options(parser)
    add_session_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Read lines from stdin, and answer each.

    Raises:
        ValueError: an option or a folder that can't be used, or a model without a chat template.
        OSError: a file that can't be read.
    """
    from onnx_iron.tools.progress import note

    talker = Talker.of(arguments)
    template = talker.text.template
    if talker.session.batch is not None:
        raise ValueError(
            f"{arguments.folder} holds a model of {talker.session.batch} sequences at a time, and "
            "a chat is one; export it without --batch"
        )
    if template is None:
        raise ValueError(
            f"{arguments.folder} has no chat template, so it isn't made for conversations; use "
            "onnx-iron generate"
        )
    begin = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
    messages = list(begin)
    note(_HELP)
    while (line := _line()) is not None:
        if line in ("/exit", "/quit"):
            break
        if line == "/reset":
            messages = list(begin)
        elif line == "/undo":
            messages = messages[: max(len(begin), len(messages) - 2)]
        elif line.startswith("/"):
            note(f"{line.split()[0]} is no command. {_HELP}")
        elif line.strip():
            asked = [*messages, {"role": "user", "content": line}]
            try:
                text, answer = talker.answer(template.encode(asked, talker.text.tokenizer))
            except ValueError as error:  # it doesn't fit, or the template refuses it
                note(f"{error}")
                continue
            except KeyboardInterrupt:
                note("\ninterrupted; what was asked is taken back")
                continue
            print(flush=True)
            messages = [*asked, {"role": "assistant", "content": text}]
            if arguments.timings:
                summarise(answer, text)


def _line() -> str | None:
    """The next line of the user, None at the end."""
    if sys.stdin.isatty():
        try:
            return input("> ")
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
