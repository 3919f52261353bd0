"""``onnx-iron conformance``: hold implementations to the cases, and report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_iron.tools.options import Subparsers

if TYPE_CHECKING:
    from onnx_iron.conformance import Case, Implementation
    from onnx_iron.conformance.node_tests import NodeTest
    from onnx_iron.conformance.report import Report


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the subcommand and its options."""
    parser = subparsers.add_parser(
        "conformance",
        parents=[common],
        help="hold execution providers to what the operators mean",
        description="Run cases of every operator, and whole graphs with states, on every "
        "implementation of this machine, and compare with float64 results rounded once. Without "
        "options: all of them. Ends with exit code 1 where a case fails.",
    )
    which = parser.add_argument_group("which implementations")
    which.add_argument(
        "--implementation",
        action="append",
        metavar="TEXT",
        help="those whose name holds TEXT; may be given again",
    )
    which.add_argument("--provider", metavar="NAME", help="a provider that onnxruntime knows here")
    which.add_argument("--library", type=Path, metavar="FILE", help="a plug-in provider's library")
    which.add_argument("--ep-name", metavar="NAME", help="the provider's name in that library")
    which.add_argument(
        "--provider-option",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="an option of that provider; may be given again",
    )
    cases = parser.add_argument_group("which cases")
    cases.add_argument("--op", action="append", metavar="NAME", help="an operator's, or a graph's")
    cases.add_argument("--case", action="append", metavar="NAME", help="one case by its whole name")
    cases.add_argument("--dtype", choices=("float32", "bfloat16"))
    cases.add_argument(
        "--onnx",
        action="store_true",
        help="with onnx's own node tests, on every provider: passed or declined",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--report", type=Path, metavar="FILE.html", help="write a page to read")
    output.add_argument("--json", type=Path, metavar="FILE", help="write everything, for machines")
    output.add_argument(
        "--merge",
        action="append",
        type=Path,
        default=[],
        metavar="FILE.json",
        help="add the outcomes of another run, on another machine or version",
    )
    output.add_argument("--failed-only", action="store_true", help="report failures alone")
    output.add_argument("--list", action="store_true", help="name cases and implementations, only")
    output.add_argument(
        "--write-vectors",
        type=Path,
        metavar="DIR",
        help="write the cases in the layout of ONNX's backend tests instead of running them",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        ValueError: nothing matches what was asked for, or a case fails.
        OSError: a file can't be read or written.
    """
    from onnx_iron.conformance.vectors import write_vectors

    cases = chosen_cases(arguments)
    if arguments.write_vectors is not None:
        count = write_vectors(cases, arguments.write_vectors)
        print(f"{count} cases in {arguments.write_vectors}")
        return
    implementations = chosen_implementations(arguments)
    if arguments.list:
        print("\n".join([i.name for i in implementations] + [c.name for c in cases]))
        return
    report = found(arguments, cases, implementations)
    failed = report.failed
    publish(arguments, report.only_failed() if arguments.failed_only else report)
    if failed:
        raise ValueError(f"{len(failed)} of {len(report.outcomes)} outcomes are failures")


def chosen_cases(arguments: argparse.Namespace) -> list[Case]:
    """The cases that the options select.

    Raises:
        ValueError: there are none.
    """
    from onnx_iron.conformance import cases

    every = list(cases())
    taken = [
        case
        for case in every
        if (not arguments.op or case.subject in arguments.op)
        and (not arguments.case or case.name in arguments.case)
        and (not arguments.dtype or case.dtype.name == arguments.dtype)
    ]
    if not taken and not chosen_node_tests(arguments):
        known = ", ".join(dict.fromkeys(case.subject for case in every))
        raise ValueError(f"no case is selected; --op takes {known}; --list names all cases")
    return taken


def chosen_node_tests(arguments: argparse.Namespace) -> Sequence[NodeTest]:
    """onnx's node tests that the options select: all, or those named as a report names them."""
    from onnx_iron.conformance.node_tests import PREFIX, node_tests

    named = [name for name in arguments.case or () if name.startswith(PREFIX)]
    if not named and (arguments.case or not arguments.onnx):
        return ()
    return [test for test in node_tests() if not named or PREFIX + test.name in named]


def chosen_implementations(arguments: argparse.Namespace) -> Sequence[Implementation]:
    """The implementations that the options select: by their whole names, else by parts of them.

    Raises:
        ValueError: there are none, or options that do not go together.
    """
    from onnx_iron.conformance.implementations import implementations
    from onnx_iron.conformance.implementations.sessions import provider

    if (arguments.library is None) != (arguments.ep_name is None):
        raise ValueError("--library and --ep-name go together: the file, and the provider in it")
    if arguments.provider_option and not (arguments.provider or arguments.ep_name):
        raise ValueError("--provider-option is for a provider: name it by --provider or --ep-name")
    name = arguments.ep_name or arguments.provider
    every: list[Implementation] = (
        list(implementations())
        if name is None
        else list(provider(name, dict(arguments.provider_option), arguments.library))
    )
    wanted = arguments.implementation
    if not wanted:
        return every
    taken = [i for i in every if i.name in wanted]
    taken = taken or [i for i in every if any(text in i.name for text in wanted)]
    if not taken:
        names = "; ".join(i.name for i in every)
        raise ValueError(f"no implementation's name holds {wanted}; there are: {names}")
    return taken


def found(
    arguments: argparse.Namespace, cases: Sequence[Case], implementations: Sequence[Implementation]
) -> Report:
    """The report of this run and of those that are merged."""
    from onnx_iron.conformance import run as run_cases
    from onnx_iron.conformance.node_tests import run_node_tests
    from onnx_iron.conformance.report import Report, environment, from_json

    others = [from_json(path.read_text("utf-8"), str(path)) for path in arguments.merge]
    outcomes = run_cases(cases, implementations, _progress)
    outcomes += run_node_tests(implementations, chosen_node_tests(arguments), _progress)
    return Report.of([environment()], outcomes).merged(others)


def _progress(done: int, total: int, name: str) -> None:
    if done == 0:
        print(f"{total} cases on {name}", file=sys.stderr)


def publish(arguments: argparse.Namespace, report: Report) -> None:
    """Write the files that were asked for, and print the matrix."""
    from onnx_iron.conformance.page import to_html
    from onnx_iron.conformance.report import to_json, to_text

    if arguments.json is not None:
        arguments.json.write_text(to_json(report), encoding="utf-8")
    if arguments.report is not None:
        arguments.report.write_text(to_html(report), encoding="utf-8")
    print(to_text(report))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
