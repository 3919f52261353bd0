"""The kinds of tokenizer in GGUF files, each built from a vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from onnx_iron.models.vocabulary import NORMAL, UNKNOWN, USER_DEFINED, Vocabulary

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class _PreTokenizer:
    """How text is cut before the merges.

    Attributes:
        splits: Patterns whose matches are pieces of their own, each applied to what the one before
            left.
        whole_words: Whether a piece that is a token needs no merges.
        adds_bos: Whether a text begins with bos where the file doesn't say.
    """

    splits: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_GPT2 = _PreTokenizer((_GPT2_SPLIT,))
_DIGITS = _PreTokenizer((r"\p{N}", _GPT2_SPLIT))
# What llama.cpp does with a file that doesn't say.
_DEFAULT = _PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2_SPLIT, r"\p{N}+", "[0-9]{3}"))
_LLAMA3 = _PreTokenizer((_LLAMA3_SPLIT,), whole_words=True, adds_bos=True)
_QWEN2 = _PreTokenizer((_QWEN2_SPLIT,))

# By the value of tokenizer.ggml.pre.
_PRE_TOKENIZERS = {
    "default": _DEFAULT,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "olmo": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "command-r": _DIGITS,
    "minerva-7b": _DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "lfm2": _LLAMA3,
    "qwen2": _QWEN2,
    "stablelm2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


@dataclass(frozen=True)
class Built:
    """A tokenizer without its special tokens, and how its tokens are spelled.

    Attributes:
        spell: The bytes that an ordinary token stands for.
        strips_space: Whether decoded text loses its first space.
        adds_bos: Whether a text begins with bos where the file doesn't say.
    """

    tokenizer: tokenizers.Tokenizer
    spell: Callable[[str], bytes]
    strips_space: bool
    adds_bos: bool


def byte_level(vocabulary: Vocabulary) -> Built:
    """GPT-2's kind: byte pair encoding over bytes that are spelled as printable characters.

    A byte that the vocabulary has no token for is left out of the ids, as in training.
    """
    kind = _PRE_TOKENIZERS.get(vocabulary.pre)
    if kind is None:
        raise vocabulary.error(
            f"tokenizer.ggml.pre is {vocabulary.pre!r}, expected one of "
            f"{', '.join(_PRE_TOKENIZERS)}; text would be cut in the wrong places with another, so "
            "convert the model with a converter that names one of these"
        )
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocabulary.ids, vocabulary.merges(), ignore_merges=kind.whole_words)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), "isolated") for split in kind.splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = _byte_alphabet()

    def spell(token: str) -> bytes:
        values = [alphabet.get(character) for character in token]
        return token.encode() if None in values else bytes(v for v in values if v is not None)

    return Built(tokenizer, spell, strips_space=False, adds_bos=kind.adds_bos)


def sentencepiece(vocabulary: Vocabulary) -> Built:
    """SentencePiece's BPE: scores order the merges, and bytes stand in for unknown characters."""
    pairs = vocabulary.merges() if vocabulary.has_merges else _merges_by_score(vocabulary)
    unknown = vocabulary.token_id("unknown_token_id")
    if unknown is None:
        unknown = min(vocabulary.of_type(UNKNOWN), default=None)
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocabulary.ids,
            pairs,
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = vocabulary.flag("add_space_prefix", True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="first" if prefix else "never", split=False
    )
    return Built(
        tokenizer,
        lambda token: token.replace("▁", " ").encode(),
        strips_space=prefix,
        adds_bos=True,
    )


def _merges_by_score(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every way to make a token of two others; the token with the highest score goes first."""
    ranked = []
    scores = vocabulary.scores()
    for token, index in vocabulary.ids.items():
        if vocabulary.types[index] not in (NORMAL, USER_DEFINED):
            continue
        for cut in range(len(token) - 1, 0, -1):
            left, right = token[:cut], token[cut:]
            if left in vocabulary.ids and right in vocabulary.ids:
                ranked.append((-scores[index], -cut, cut - len(token), left, right))
    ranked.sort(key=lambda entry: entry[:3])
    return [(left, right) for *_, left, right in ranked]


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte: itself where printable, else the next from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [value for value in range(256) if value not in printable]
    return {
        **{chr(value): value for value in sorted(printable)},
        **{chr(0x100 + place): value for place, value in enumerate(rest)},
    }
