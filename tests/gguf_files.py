"""Small GGUF files for tests: Llama models of two layers, with either kind of vocabulary."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

CORPUS = """
The keeper wound the clock at 6:45, trimmed 3 wicks and wrote 1024 lines into the log of 1899.
It's a lamp that's cleaned today; it'll be seen tomorrow, and we've seen it too. DON'T worry!
    def keeper(lamp):\n\treturn lamp.clean()  # the lamp, the lamp, the keeper
Über den Wellen läuft ein Licht. Les bougies éclairent la côte, déjà vue.\r\n\r\n
На берегу стоит маяк, 海の上に光が見える, and there are 灯台 and 😀👍🏽 everywhere.
"""  # noqa: RUF001

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@cache
def byte_level_vocabulary(pre: str = "smollm") -> dict[str, Any]:
    """The metadata of a byte-level BPE vocabulary trained on the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(
        [CORPUS] * 3,
        trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=control,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokens, merges = _trained(tokenizer)
    types = [CONTROL] * len(control) + [NORMAL] * (len(tokens) - len(control))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, "<think>"],
        "tokenizer.ggml.token_type": [*types, USER_DEFINED],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


@cache
def sentencepiece_vocabulary() -> dict[str, Any]:
    """The metadata of a SentencePiece vocabulary trained on the corpus, with scores for merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(
        [CORPUS] * 3, trainers.BpeTrainer(vocab_size=500, show_progress=False)
    )
    tokens, merges = _trained(tokenizer)
    first = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256))]
    merged = [merge.replace(" ", "") for merge in merges]
    letters = [token for token in tokens if token not in set(merged) and token != "\r"]
    # As SentencePiece has it: the merges, best first, and after them the single characters.
    ordinary = [*dict.fromkeys(merged), *letters]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*first, *ordinary],
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL]
        + [BYTE] * 256
        + [NORMAL] * len(ordinary),
        "tokenizer.ggml.scores": [0.0] * len(first) + [-float(i) for i in range(len(ordinary))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def llama_metadata(vocabulary: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the small Llama model, without its architecture."""
    return {
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": HEAD_DIM,
        **vocabulary,
    }


def llama_tensors(vocabulary: int) -> dict[str, tuple[np.ndarray[Any, Any], Kind]]:
    """Random weights by name, each with the type that it is stored as."""
    random = np.random.default_rng(7)

    def weight(*shape: int) -> np.ndarray[Any, Any]:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    tensors = {"token_embd.weight": (weight(vocabulary, HIDDEN), Kind.Q8_0)}
    for layer in range(LAYERS):
        shapes = {
            "attn_norm": ((HIDDEN,), Kind.F32),
            "attn_q": ((HEADS * HEAD_DIM, HIDDEN), Kind.Q4_1),
            "attn_k": ((KV_HEADS * HEAD_DIM, HIDDEN), Kind.Q4_0),
            "attn_v": ((KV_HEADS * HEAD_DIM, HIDDEN), Kind.F16),
            "attn_output": ((HIDDEN, HEADS * HEAD_DIM), Kind.BF16),
            "ffn_norm": ((HIDDEN,), Kind.F32),
            "ffn_gate": ((INNER, HIDDEN), Kind.Q5_1),
            "ffn_up": ((INNER, HIDDEN), Kind.Q4_1),
            "ffn_down": ((HIDDEN, INNER), Kind.F32),
        }
        for name, (shape, kind) in shapes.items():
            value = 1 + weight(*shape) if len(shape) == 1 else weight(*shape)
            tensors[f"blk.{layer}.{name}.weight"] = (value, kind)
    tensors["output_norm.weight"] = (1 + weight(HIDDEN), Kind.F32)
    return tensors


def write_llama(
    path: Path,
    *,
    vocabulary: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, tuple[np.ndarray[Any, Any], Kind] | None] | None = None,
    architecture: str = "llama",
    tensors_a_part: int = 0,
) -> Path:
    """Write the small model; ``metadata`` and ``tensors`` change it, None removes an entry.

    The path is the file's, or the first part's where it is split.
    """
    vocabulary = byte_level_vocabulary() if vocabulary is None else vocabulary
    entries = {**llama_metadata(vocabulary), **(metadata or {})}
    contents = {**llama_tensors(len(vocabulary["tokenizer.ggml.tokens"])), **(tensors or {})}
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_a_part)
    for key, value in entries.items():
        if value is not None:
            _add(writer, key, value)
    for name, content in contents.items():
        if content is not None:
            array, kind = content
            stored = array if kind == Kind.F32 else gguf.quants.quantize(array, kind)
            writer.add_tensor(name, stored, raw_dtype=None if kind == Kind.F32 else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return min(path.parent.glob(f"{path.stem}-*")) if tensors_a_part else path


def _trained(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """A trained tokenizer's tokens in the order of their ids, and its merges."""
    vocabulary = tokenizer.get_vocab()
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    return sorted(vocabulary, key=lambda token: vocabulary[token]), merges


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
