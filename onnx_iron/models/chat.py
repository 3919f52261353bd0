"""A model's chat template: messages to the text that the model was trained to answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_SPECIAL_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
# A prompt longer than this is no prompt, but a template that was made to fill the memory.
_MAX_CHARACTERS = 1 << 24


class ChatTemplate:
    """A Jinja template from a checkpoint, rendered in a sandbox as transformers renders it.

    ``special_tokens`` are the template's variables such as ``bos_token``.

    Raises:
        ValueError: The template doesn't parse; the text begins with ``source``.
    """

    def __init__(
        self,
        template: str,
        special_tokens: Mapping[str, str] | None = None,
        source: str = "chat template",
    ) -> None:
        self._source = source
        self._special_tokens = dict(special_tokens or {})
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _Generation],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(template)
        except (jinja2.TemplateError, RecursionError, ValueError) as error:
            raise self._error("doesn't parse", error) from error

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """Return the text of a chat, at its end the beginning of the answer if asked for.

        A message has a ``role`` (system, user, assistant) and a ``content``.

        Raises:
            ValueError: The template refuses the messages, or fails.
        """
        pieces, length = [], 0
        try:
            for piece in self._template.generate(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            ):
                pieces.append(piece)
                length += len(piece)
                if length > _MAX_CHARACTERS:
                    raise ValueError(f"it gives more than {_MAX_CHARACTERS} characters")
        except Exception as error:  # The template's code may raise anything.
            raise self._error("can't render these messages", error) from error
        return "".join(pieces)

    def _error(self, what: str, error: Exception) -> ValueError:
        return ValueError(
            f"{self._source}: the chat template {what}: {error or type(error).__name__}; pass "
            "other messages, or prompts without a template"
        )


def chat_template(metadata: Mapping[str, Any], source: str) -> ChatTemplate | None:
    """Return the chat template in a GGUF file's metadata, or None if the file has none.

    Raises:
        ValueError: It isn't a text, or doesn't parse.
    """
    template = metadata.get("tokenizer.chat_template")
    if template is None:
        return None
    if not isinstance(template, str):
        raise ValueError(
            f"{source}: tokenizer.chat_template is of type {type(template).__name__}, expected str"
        )
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    ids = {name: metadata.get(f"tokenizer.ggml.{key}") for name, key in _SPECIAL_TOKENS.items()}
    return ChatTemplate(
        template,
        {n: tokens[i] for n, i in ids.items() if type(i) is int and 0 <= i < len(tokens)},
        source,
    )


class _Generation(jinja2.ext.Extension):
    """``{% generation %}...{% endgeneration %}`` marks an answer for training; here it is text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own escapes <, > and & for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
