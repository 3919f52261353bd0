"""What the commands that talk to a model share: its folder, the sampling options, the answer."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_iron.tools.options import positive, threads

if TYPE_CHECKING:
    from onnx_iron import Session
    from onnx_iron.models.generation import Generation
    from onnx_iron.models.sampling import Sampler
    from onnx_iron.models.text import Text


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add where a model runs."""
    parser.add_argument(
        "--provider",
        choices=("iron", "stock"),
        default="iron",
        help="our execution provider, or onnxruntime alone (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "npu"),
        default="auto",
        help="of our provider; auto takes an NPU where there is one (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="(default: onnxruntime's choice)"
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Add how tokens are chosen; what is left open is the model's own setting."""
    group = parser.add_argument_group(
        "sampling", "where not given, as the model's generation_config.json says, else greedy"
    )
    group.add_argument("--greedy", action="store_true", help="always the likeliest token")
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    group.add_argument("--top-k", type=int, metavar="N", help="of the N likeliest; 0 for all")
    group.add_argument(
        "--top-p", type=float, metavar="P", help="of the likeliest that together have P"
    )
    group.add_argument(
        "--min-p", type=float, metavar="P", help="of those with P of the likeliest's probability"
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="X",
        help="over 1 makes tokens that were there less likely",
    )
    group.add_argument("--seed", type=int, metavar="N", help="the same answer for the same number")
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end an answer before this text; may be given several times",
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=512,
        metavar="N",
        help="tokens that an answer has at most (default: %(default)s)",
    )


@dataclass
class Talker:
    """A model that answers.

    Attributes:
        ran: the ids that its states hold.
    """

    session: Session
    text: Text
    sampler: Sampler
    context: int
    max_tokens: int
    stops: Sequence[str]
    ran: tuple[int, ...] = ()

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Talker:
        """Open the folder that a command line names.

        Raises:
            FileNotFoundError: it isn't a folder of ours, or has no tokenizer.
            ValueError: an option out of its range, or a model that generates no text.
        """
        from onnx_iron.models.exported import text_of
        from onnx_iron.models.sampling import Sampler
        from onnx_iron.tools.progress import stage

        folder: Path = arguments.folder
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder} is no folder; give one that onnx-iron export has written"
            )
        if any(folder.glob("*.onnx")) and not (folder / "decode.onnx").is_file():
            raise ValueError(
                f"{folder} holds no model that generates text; it needs decode.onnx, as onnx-iron "
                "export writes it of a decoder"
            )
        text = text_of(folder)
        asked = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        given = {name: getattr(arguments, name) for name in asked}
        given = {name: value for name, value in given.items() if value is not None}
        settings = dataclasses.replace(text.settings, **given)
        if arguments.greedy:
            settings = dataclasses.replace(settings, temperature=0.0)
        sampler = Sampler(settings, arguments.seed, text.tokenizer.ids())
        with stage("Opening the model"):
            session = open_session(folder, arguments)
        context = session.context
        if context is None:
            raise ValueError(
                f"{folder / 'decode.onnx'} does not say how long its context is; give a folder "
                "that onnx-iron export has written"
            )
        return cls(session, text, sampler, context, arguments.max_tokens, arguments.stop)

    def answer(self, ids: Sequence[int]) -> tuple[str, Generation]:
        """Answer the text of ``ids``, of which what the states hold already isn't run again.

        The answer goes to stdout as it comes.
        """
        from onnx_iron.models.generation import StoppedText, generate

        same = _common(self.ran, ids[:-1])
        if same < len(self.ran):
            self._go_back(same)
            same = len(self.ran)
        new = list(ids[same:])
        shown = StoppedText(self.text.tokenizer.stream(), self.stops)
        whole: list[str] = []

        def show(text: str) -> None:
            whole.append(text)
            sys.stdout.write(text)
            sys.stdout.flush()

        def emit(token: int) -> bool:
            show(shown.feed(token))
            return shown.stopped

        before = self.ran
        self.ran = ()  # should the answer be interrupted, nobody knows what the states hold
        try:
            answer = generate(
                self.session,
                new,
                max_tokens=self.max_tokens,
                context=self.context,
                end_ids=self.text.tokenizer.eos_ids,
                emit=emit,
                sampler=self.sampler,
                before=before,
            )
        except BaseException:
            self.session.reset()
            raise
        show(shown.finish())
        self.ran = (*before, *new, *answer.ids[: answer.steps])
        return "".join(whole), answer

    def _go_back(self, count: int) -> None:
        """Keep the first ``count`` ids that ran, or none where the states can't go back."""
        try:
            self.session.rewind(len(self.ran) - count)
            self.ran = self.ran[:count]
        except ValueError:
            self.session.reset()
            self.ran = ()


def open_session(folder: Path, arguments: argparse.Namespace) -> Session:
    """Open a folder as the session options say, with placement recorded."""
    import onnxruntime

    from onnx_iron import Session
    from onnx_iron.provider.placement import RECORDING

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(RECORDING, "1")
    if arguments.threads is not None:
        options.intra_op_num_threads = arguments.threads
    return Session(
        folder,
        provider=arguments.provider,
        device=getattr(arguments, "device", "auto"),
        session_options=options,
    )


def summarise(answer: Generation, text: str) -> None:
    """Print what an answer took, in one line."""
    from onnx_iron.tools.progress import note

    rate = answer.tokens_per_second
    speed = f", {rate:.1f} tokens/s" if rate else ""
    note(
        f"{answer.prompt_tokens} tokens in, {len(answer.ids)} out{speed}, first after "
        f"{answer.first_token_seconds * 1e3:.0f} ms; {answer.stop.value}"
    )


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))
