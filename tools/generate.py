"""``onnx-iron generate``: a model's answer to a prompt, or a batch of answers."""

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
    parser.add_argument(
        "prompt",
        nargs="+",
        metavar="PROMPT",
        help="the text, or - to read it from stdin; of a model exported with --batch B several of "
        "as many tokens, or one to be answered B times",
    )
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

    talker = Talker.of(arguments)
    prompts = [sys.stdin.read() if text == "-" else text for text in arguments.prompt]
    batch = talker.session.batch
    if len(prompts) > 1 and len(prompts) != batch:
        remedy = f"export it with --batch {len(prompts)}" if batch is None else "give as many"
        raise ValueError(
            f"{len(prompts)} prompts, and {arguments.folder} holds a model of {batch or 1} at a "
            f"time; {remedy}, or answer them one by one"
        )
    template = talker.text.template
    if template is None or arguments.raw:
        if template is None and not arguments.raw:
            note("The model has no chat template: it continues the prompt as it is.")
        if arguments.system is not None:
            raise ValueError("--system needs a chat template; leave it out, or leave out --raw")
        tokenizer = talker.text.tokenizer
        ids = [tokenizer.encode(text, add_bos=True, special=False) for text in prompts]
    else:
        begin = [] if arguments.system is None else [("system", arguments.system)]
        conversations = [
            [{"role": role, "content": said} for role, said in (*begin, ("user", text))]
            for text in prompts
        ]
        ids = [template.encode(messages, talker.text.tokenizer) for messages in conversations]
    if batch is None:
        text, answer = talker.answer(ids[0])
        if not text.endswith("\n"):
            print(flush=True)
        summarise(answer, text)
        return
    several = ids if len(ids) > 1 else ids * batch
    for number, (text, answer) in enumerate(talker.answers(several)):
        print(f"[{number + 1}]", text.removesuffix("\n"), flush=True)
        summarise(answer, text)
