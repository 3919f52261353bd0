"""A model's chat template: messages to the text or ids that the model was trained to answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from onnx_iron.models import chat_renderer
from onnx_iron.models.chat_marks import Marks, pieces
from onnx_iron.models.chat_renderer import CPU_SECONDS, PARSE, RENDER
from onnx_iron.models.text import TextTokenizer

_SPECIAL_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
# The renderer's processor time is limited too; this ends one that waits, or can't limit itself.
_SECONDS = 30
# Isolated from the environment and the site's hooks: the renderer needs Jinja's folders only.
_START = (
    "import runpy, sys; sys.path += sys.argv[2:]; runpy.run_path(sys.argv[1], None, '__main__')"
)
_FOLDERS = sorted({str(Path(m.__path__[0]).parent) for m in (jinja2, markupsafe)})


class ChatTemplate:
    """A Jinja template from a checkpoint, rendered in a sandbox as transformers renders it.

    Each rendering is a process of its own, so that a template that loops or fills the memory ends
    with that process. ``special_tokens`` are the template's variables such as ``bos_token``.

    Raises:
        ValueError: The template doesn't parse, or no process can be started; the text begins with
            ``source``.
    """

    def __init__(
        self,
        template: str,
        special_tokens: Mapping[str, str] | None = None,
        source: str = "chat template",
    ) -> None:
        self._source = source
        self._template = template
        self._special_tokens = dict(special_tokens or {})
        self._run([], True)

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """Return the text of a chat, at its end the beginning of the answer if asked for.

        A message has a ``role`` (system, user, assistant) and a ``content``. In the text nothing
        tells the template's control tokens from a content that spells one: use ``encode`` for ids.

        Raises:
            ValueError: The template refuses the messages, fails, or takes too much time or memory.
        """
        (text,) = self._run([self._render(self._plain(messages))], add_generation_prompt)
        assert text is not None
        return text

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        tokenizer: TextTokenizer,
        *,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Return the ids of a chat, with control tokens where the template puts them only.

        What the messages spell is text, whatever it spells, but for a ``role`` of one word.

        Raises:
            ValueError: As ``render``; or the messages spell control tokens, and the template works
                with its contents in a way that hides which tokens are its own.
        """
        as_data = self._plain(messages)
        marks = Marks(self._template, as_data, tokenizer.control_tokens)
        plain, marked, masked = self._run(
            [
                self._render(as_data),
                self._render(as_data, marks.of_tokens),
                self._render(marks.masked),
            ],
            add_generation_prompt,
        )
        assert plain is not None
        found = pieces(plain, marked, masked, marks)
        if found is None:
            raise self._error(
                RENDER,
                "they spell control tokens of the model, or the template changes its own, and "
                "which are whose can't be told",
            )
        ids: list[int] = []
        for piece in found:
            ids += [piece] if isinstance(piece, int) else tokenizer.encode(piece, special=False)
        return ids

    def _plain(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages as the renderer's process gets them."""
        try:
            data: list[dict[str, Any]] = json.loads(json.dumps([dict(m) for m in messages]))
        except (TypeError, ValueError, RecursionError) as error:
            raise self._error(
                RENDER, f"they are not dicts of texts, numbers, lists and dicts: {error}"
            ) from error
        return data

    def _render(
        self, messages: list[dict[str, Any]], marks: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        marks = marks or {}
        special = {name: marks.get(token, token) for name, token in self._special_tokens.items()}
        return {"messages": messages, "special_tokens": special, "marks": marks}

    def _run(
        self, renders: Sequence[Mapping[str, Any]], add_generation_prompt: bool
    ) -> list[str | None]:
        failed = RENDER if renders else PARSE
        request = {
            "template": self._template,
            "renders": renders,
            "add_generation_prompt": add_generation_prompt,
        }
        command = [sys.executable, "-I", "-S", "-c", _START, chat_renderer.__file__, *_FOLDERS]
        try:
            run = subprocess.run(
                command,
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._error(failed, f"it takes more than {_SECONDS} s") from None
        except (OSError, ValueError) as error:
            raise self._error(
                failed, f"it is rendered in a process of its own, and none starts: {error}"
            ) from error
        if run.returncode:
            raise self._error(failed, _death(run.returncode))
        answer = json.loads(run.stdout)
        if "error" in answer:
            raise self._error(answer["failed"], answer["error"])
        texts: list[str | None] = answer["texts"]
        return texts

    def _error(self, failed: str, reason: str) -> ValueError:
        return ValueError(
            f"{self._source}: the chat template {failed}: {reason}; pass other messages, or "
            "prompts without a template"
        )


def chat_template(metadata: Mapping[str, Any], source: str) -> ChatTemplate | None:
    """Return the chat template in a GGUF file's metadata, or None if the file has none.

    Raises:
        ValueError: It isn't a text, or doesn't parse; or a special token's id isn't a token's.
    """
    template = metadata.get("tokenizer.chat_template")
    if template is None:
        return None
    if not isinstance(template, str):
        raise ValueError(
            f"{source}: tokenizer.chat_template is of type {type(template).__name__}, expected str"
        )
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    special = {}
    for name, key in _SPECIAL_TOKENS.items():
        index = metadata.get(f"tokenizer.ggml.{key}")
        if index is None:
            continue
        if type(index) is not int or not 0 <= index < len(tokens):
            raise ValueError(
                f"{source}: tokenizer.ggml.{key} is {repr(index)[:80]}, expected the place of one "
                f"of {len(tokens)} tokens; convert the model again"
            )
        special[name] = tokens[index]
    return ChatTemplate(template, special, source)


def _death(code: int) -> str:
    """Why the renderer gave no answer."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it takes more than {CPU_SECONDS} s of processor time"
    if code < 0:
        return f"its process ends by {signal.Signals(-code).name}, as too deep a nesting makes it"
    return f"its process ends with exit code {code}"
