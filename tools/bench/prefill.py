"""Tokens of a prompt a second, by its length, against whatever else is installed.

``python -m onnx_iron.tools.bench.prefill [--prompts 64,512] [--shapes SmolLM2-135M,...]``

Candidates and peer are those of ``decode``; all give the logits of the last token alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from onnx_iron.tools import machine
from onnx_iron.tools.bench.language import Field, add_options, sources_of
from onnx_iron.tools.bench.measure import Report, Work, parser_of
from onnx_iron.tools.bench.talkers import Talker, go_to
from onnx_iron.tools.estimate import lengths


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line a candidate, prompt and model."""
    parser = parser_of(__doc__, rounds=5)
    add_options(parser)
    parser.add_argument(
        "--prompts",
        type=lengths,
        default=[64, 512],
        metavar="N,...",
        help="lengths (default: 64,512)",
    )
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.prompts = [8]
    report = Report(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        for name, source in sources_of(arguments, Path(scratch)).items():
            with tempfile.TemporaryDirectory() as folder:
                room = max(arguments.prompts) + 8
                field = Field(arguments, report, source, room, Path(folder))
                for count in arguments.prompts:
                    report.compare(
                        f"{name} prefill {count}",
                        {
                            candidate: rate_of(talker, count)
                            for candidate, talker in field.talkers.items()
                        },
                        field.peer,
                        unit="tok/s",
                        work={
                            candidate: Work(work.flops / count, work.bytes / count)
                            for candidate, work in field.work(count, 0).items()
                        },
                        prompt=count,
                    )
    report.end()


def rate_of(talker: Talker, count: int) -> Callable[[], float]:
    """What measures tokens a second of a prompt."""

    def rate() -> float:
        go_to(talker, 0)
        begin = machine.clock()
        talker.prompt(count)
        return count / (machine.clock() - begin)

    return rate


if __name__ == "__main__":
    main()
