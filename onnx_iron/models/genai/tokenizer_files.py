"""The tokenizer of a GGUF file in the files that onnxruntime-genai reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, decoders, processors

from onnx_iron.models.checkpoint import Checkpoint
from onnx_iron.models.kept_files import GGUF, TOKENIZER, TOKENIZER_CONFIG
from onnx_iron.models.tokenizer_kinds import byte_level_tokenizer
from onnx_iron.models.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

_NAMED = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def tokenizer_files(checkpoint: Checkpoint) -> Mapping[str, bytes]:
    """tokenizer.json and tokenizer_config.json of a GGUF file with byte pairs; nothing of others: a
    folder has its own, and SentencePiece's scores have no place in them.
    """
    kept = checkpoint.files().get(GGUF)
    if kept is None:
        return {}
    metadata: dict[str, Any] = json.loads(kept)
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        return {}
    vocabulary = Vocabulary(metadata, str(checkpoint.path))
    tokenizer = byte_level_tokenizer(vocabulary)
    for kind, special in ((CONTROL, True), (UNKNOWN, True), (USER_DEFINED, False)):
        tokenizer.add_tokens(
            [
                AddedToken(vocabulary.tokens[index], special=special, normalized=False)
                for index in sorted(vocabulary.of_type(kind))
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    ids = {name: vocabulary.token_id(f"{key}_token_id") for name, key in _NAMED.items()}
    named = {name: vocabulary.tokens[index] for name, index in ids.items() if index is not None}
    bos = checkpoint.text().tokenizer.encode("", add_bos=True)
    if bos:
        begin = vocabulary.tokens[bos[0]]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, bos[0])]
        )
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "add_bos_token": bool(bos),
        "clean_up_tokenization_spaces": False,
        **named,
    }
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        config["chat_template"] = template
    return {
        TOKENIZER: tokenizer.to_str(pretty=False).encode(),
        TOKENIZER_CONFIG: json.dumps(config, indent=2).encode() + b"\n",
    }
