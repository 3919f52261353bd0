"""The tokenizer, chat template and settings that a GGUF file's metadata describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx_iron.models.chat import chat_template
from onnx_iron.models.json_file import read_object
from onnx_iron.models.kept_files import GGUF
from onnx_iron.models.text import Settings, Text
from onnx_iron.models.tokenizer import Tokenizer


def gguf_text(metadata: Mapping[str, Any], source: str) -> Text:
    """Read what the metadata says about text.

    Raises:
        ValueError: A key that is missing or contradicts another, or a kind of tokenizer that
            isn't implemented.
    """
    return Text(Tokenizer(metadata, source), chat_template(metadata, source), Settings())


def unpacked(folder: Path) -> Text:
    """What an exported folder keeps of a GGUF file."""
    return gguf_text(read_object(folder / GGUF), str(folder / GGUF))
