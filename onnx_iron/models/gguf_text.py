"""The tokenizer, chat template and settings that a GGUF file's metadata describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx_iron.models.chat import chat_template
from onnx_iron.models.json_file import read_object
from onnx_iron.models.text import Settings, Text
from onnx_iron.models.tokenizer import Tokenizer

# What an exported folder keeps: the metadata about text, as JSON.
FILE = "tokenizer.gguf.json"


def gguf_text(metadata: Mapping[str, Any], source: str) -> Text:
    """Read what the metadata says about text.

    Raises:
        ValueError: A key that is missing or contradicts another, or a kind of tokenizer that
            isn't implemented.
    """
    return Text(Tokenizer(metadata, source), chat_template(metadata, source), Settings())


def packed(metadata: Mapping[str, Any]) -> bytes:
    """The part of the metadata that is about text, for :func:`unpacked`."""
    about = {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}
    return json.dumps(about, ensure_ascii=True).encode()


def unpacked(folder: Path) -> Text:
    """What an exported folder keeps of a GGUF file."""
    return gguf_text(read_object(folder / FILE), str(folder / FILE))
