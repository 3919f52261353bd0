"""Renders a chat template in a process of its own, whose time and memory are limited.

The template is a program from a file that nobody has vouched for, and Jinja's sandbox bounds
neither: a range within a range, ``9 ** 9 ** 9``. ``chat.py`` starts this file as a script; the
request is JSON on the standard input, the reply JSON on the standard output.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

PARSE, RENDER = "doesn't parse", "can't render these messages"
CPU_SECONDS = 4
MEMORY_MIB = 512
# A prompt longer than this is no prompt, but a template that was made to fill the memory.
MAX_CHARACTERS = 1 << 22
_MAX_ERROR = 500
_LIMITS = {
    resource.RLIMIT_AS: MEMORY_MIB << 20,
    resource.RLIMIT_CPU: CPU_SECONDS,
    resource.RLIMIT_CORE: 0,
    # A template that got out of the sandbox writes no file, and starts no process.
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NPROC: 0,
}


class _Generation(jinja2.ext.Extension):
    """``{% generation %}...{% endgeneration %}`` marks an answer for training; here it is text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def reply(request: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the template, and render it once for each of the request's ``renders``.

    A render has ``messages``, ``special_tokens`` and ``marks``, which replace texts in the
    template's own constants. Of the renders after the first, one that fails is None in ``texts``;
    any other failure is ``error``, with what failed.
    """
    environment = _environment()
    failed = PARSE
    texts: list[str | None] = []
    try:
        environment.from_string(request["template"])
        failed = RENDER
        for render in request["renders"]:
            try:
                texts.append(_render(environment, request, render))
            except Exception:
                if not texts:
                    raise
                texts.append(None)
    except MemoryError:
        return {"failed": failed, "error": f"it needs more than {MEMORY_MIB} MiB of memory"}
    except Exception as error:  # The template's code may raise anything.
        text = str(error) or type(error).__name__
        return {"failed": failed, "error": text[:_MAX_ERROR]}
    return {"texts": texts}


def _environment() -> ImmutableSandboxedEnvironment:
    """What a template finds in transformers."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation]
    )
    now = datetime.now()
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now.strftime(form)
    return environment


def _render(
    environment: ImmutableSandboxedEnvironment,
    request: Mapping[str, Any],
    render: Mapping[str, Any],
) -> str:
    tree = environment.parse(request["template"])
    for constant in tree.find_all((nodes.Const, nodes.TemplateData)):
        field = "data" if isinstance(constant, nodes.TemplateData) else "value"
        value = getattr(constant, field)
        if isinstance(value, str):
            setattr(constant, field, _marked(value, render["marks"]))
    code = environment.compile(tree)
    template = jinja2.Template.from_code(environment, code, environment.make_globals(None))
    pieces, length = [], 0
    for piece in template.generate(
        messages=render["messages"],
        add_generation_prompt=request["add_generation_prompt"],
        tools=None,
        documents=None,
        **render["special_tokens"],
    ):
        pieces.append(piece)
        length += len(piece)
        if length > MAX_CHARACTERS:
            raise ValueError(f"it gives more than {MAX_CHARACTERS} characters")
    return "".join(pieces)


def _marked(text: str, marks: Mapping[str, str]) -> str:
    for old, new in marks.items():
        text = text.replace(old, new)
    return text


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes <, > and & for HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.read())
    for limit, most in _LIMITS.items():
        resource.setrlimit(limit, (most, most))
    sys.stdout.buffer.write(json.dumps(reply(request)).encode())


if __name__ == "__main__":
    main()
