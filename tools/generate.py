"""``onnx-iron generate``: a model's answer to one prompt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onnx_iron.tools.options import Subparsers
from onnx_iron.tools.talk import Talker, add_sampling_options, add_session_options, summarise


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "generate",
        parents=[common],
        help="answer a prompt with an exported model",
        description="Answer a prompt with a model that onnx-iron export has written. The answer "
        "goes to stdout, everything else to stderr.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="as export writes it")
    parser.add_argument("prompt", metavar="PROMPT", help="the text, or - to read it from stdin")
    parser.add_argument(
        "--system", metavar="TEXT", help="what the model is to be, for a chat model"
    )
    parser.add_argument(
        "--raw", action="store_true", help="continue the text itself, without the chat template"
    )
    add_sampling_options(parser)
    add_session_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Open the model and print its answer as it comes.

    Raises:
        ValueError: an option, a prompt that doesn't fit, or a folder that can't be used.
        OSError: a file that can't be read.
    """
    from onnx_iron.tools.progress import note

    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    talker = Talker.of(arguments)
    template = talker.text.template
    if template is None or arguments.raw:
        if template is None and not arguments.raw:
            note("The model has no chat template: it continues the prompt as it is.")
        if arguments.system is not None:
            raise ValueError("--system needs a chat template; leave it out, or leave out --raw")
        ids = talker.text.tokenizer.encode(prompt, add_bos=True, special=False)
    else:
        messages = [{"role": "user", "content": prompt}]
        if arguments.system is not None:
            messages.insert(0, {"role": "system", "content": arguments.system})
        ids = template.encode(messages, talker.text.tokenizer)
    text, answer = talker.answer(ids)
    if not text.endswith("\n"):
        print(flush=True)
    summarise(answer, text)
