"""Tokens a second, one at a time, by how many are in the context, against what else is installed.

``python -m onnx_iron.tools.bench.decode [--contexts 0,512,1024,2048] [--shapes SmolLM2-135M,...]``

Each candidate is brought to a position and decodes from there, in turns. Plain onnxruntime, to
which the ratios are, runs a float32 model of the same shape with GroupQueryAttention, as
onnxruntime-genai's builder writes it, its caches bound as genai binds them; for shapes that are not
a llama's, it runs our export's function bodies.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from onnx_iron.tools import machine
from onnx_iron.tools.bench.language import Field, add_options, sources_of
from onnx_iron.tools.bench.measure import Report, parser_of
from onnx_iron.tools.bench.talkers import Talker, go_to
from onnx_iron.tools.estimate import lengths


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line a candidate, context and model."""
    parser = parser_of(__doc__, rounds=5)
    add_options(parser)
    parser.add_argument(
        "--contexts",
        type=lambda text: [0, *lengths(text.removeprefix("0,"))] if text != "0" else [0],
        default=[0, 512, 1024, 2048],
        metavar="N,...",
        help="tokens before those that are counted (default: 0,512,1024,2048)",
    )
    parser.add_argument("--tokens", type=int, default=32, help="counted (default: %(default)s)")
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.contexts, arguments.tokens = [0, 8], 3
    report = Report(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        for name, source in sources_of(arguments, Path(scratch)).items():
            with tempfile.TemporaryDirectory() as folder:
                room = max(arguments.contexts) + arguments.tokens + 8
                field = Field(arguments, report, source, room, Path(folder))
                for context in arguments.contexts:
                    report.compare(
                        f"{name} decode at {context}",
                        {
                            candidate: rate_at(talker, context, arguments.tokens)
                            for candidate, talker in field.talkers.items()
                        },
                        field.peer,
                        unit="tok/s",
                        work=field.work(1, context + arguments.tokens // 2),
                        context=context,
                    )
    report.end()


def rate_at(talker: Talker, context: int, tokens: int) -> Callable[[], float]:
    """What measures tokens a second after so many others."""

    def rate() -> float:
        go_to(talker, context)
        begin = machine.clock()
        for _ in range(tokens):
            talker.token()
        return tokens / (machine.clock() - begin)

    return rate


if __name__ == "__main__":
    main()
