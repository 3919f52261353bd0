"""What an exported folder keeps of a checkpoint beside the models: files about text and audio."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
CONFIG, GENERATION, TEMPLATE = "config.json", "generation_config.json", "chat_template.jinja"
# How a sound becomes an encoder's input; newer checkpoints have the latter.
PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
# Of a Hugging Face folder; and of a GGUF file the metadata about text, as JSON.
HUGGINGFACE = (TOKENIZER, TOKENIZER_CONFIG, CONFIG, GENERATION, TEMPLATE, PREPROCESSOR, PROCESSOR)
GGUF = "tokenizer.gguf.json"
# What onnxruntime-genai reads first.
GENAI = "genai_config.json"
# What `generate` and `chat` can't do without: one of these.
TOKENIZERS = (TOKENIZER, GGUF)


def packed(metadata: Mapping[str, Any]) -> bytes:
    """The part of a GGUF file's metadata that is about text."""
    about = {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}
    return json.dumps(about, ensure_ascii=True).encode()
