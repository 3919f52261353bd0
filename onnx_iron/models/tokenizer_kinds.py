"""The kinds of tokenizer in GGUF files, each built from a vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from onnx_iron.models.sentencepiece_bpe import SentencePieceBPE
from onnx_iron.models.vocabulary import BYTE, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary

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
_CL100K = _PreTokenizer((_LLAMA3_SPLIT,))
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
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "qwen2": _QWEN2,
    "stablelm2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


@dataclass(frozen=True)
class Built:
    """A tokenizer without its special tokens, and how its tokens are spelled.

    Attributes:
        encode: The ids of a text in which nothing is special.
        spell: The bytes that an ordinary token stands for.
        strips_space: Whether decoded text loses its first space.
        strips_spaces: Whether further tokens at its beginning that are a space go too.
        adds_bos: Whether a text begins with bos where the file doesn't say.
    """

    encode: Callable[[str], list[int]]
    spell: Callable[[str], bytes]
    strips_space: bool
    strips_spaces: bool
    adds_bos: bool


def byte_level_tokenizer(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """GPT-2's kind for a text in which nothing is special."""
    kind = _byte_level_kind(vocabulary)
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocabulary.ids, vocabulary.merges(), ignore_merges=kind.whole_words)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), "isolated") for split in kind.splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _byte_level_kind(vocabulary: Vocabulary) -> _PreTokenizer:
    """How text is cut before the merges.

    Raises:
        ValueError: a pre-tokenizer that isn't known, or keys that don't go with this kind.
    """
    kind = _PRE_TOKENIZERS.get(vocabulary.pre)
    if kind is None:
        raise vocabulary.error(
            f"tokenizer.ggml.pre is {vocabulary.pre!r}, expected one of "
            f"{', '.join(_PRE_TOKENIZERS)}; text would be cut in the wrong places with another, so "
            "convert the model with a converter that names one of these"
        )
    for name in ("add_space_prefix", "remove_extra_whitespaces"):
        vocabulary.expect(name, False)
    return kind


def byte_level(vocabulary: Vocabulary) -> Built:
    """GPT-2's kind: byte pair encoding over bytes that are spelled as printable characters.

    A byte that the vocabulary has no token for is left out of the ids, as in training.
    """
    kind, tokenizer = _byte_level_kind(vocabulary), byte_level_tokenizer(vocabulary)
    alphabet = _byte_alphabet()

    def spell(token: str) -> bytes:
        values = [alphabet.get(character) for character in token]
        return token.encode() if None in values else bytes(v for v in values if v is not None)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return Built(encode, spell, strips_space=False, strips_spaces=False, adds_bos=kind.adds_bos)


def sentencepiece(vocabulary: Vocabulary) -> Built:
    """SentencePiece's BPE: scores order the merges, and bytes stand in for unknown characters."""
    unknown = vocabulary.token_id("unknown_token_id")
    if unknown is None:
        unknown = min(vocabulary.of_type(UNKNOWN), default=None)
    unused = vocabulary.of_type(UNUSED)
    mergeable = vocabulary.of_type(NORMAL) | vocabulary.of_type(USER_DEFINED) | unused
    tokens, scores = vocabulary.tokens, vocabulary.scores()
    prefix = vocabulary.flag("add_space_prefix", True)
    collapses = vocabulary.flag("remove_extra_whitespaces", False)
    bpe = SentencePieceBPE(
        scores={tokens[index]: scores[index] for index in mergeable},
        ids={tokens[index]: index for index in mergeable},
        unused=frozenset(tokens[index] for index in unused),
        bytes={vocabulary.byte(index)[0]: index for index in vocabulary.of_type(BYTE)},
        unknown=unknown,
        adds_space=prefix,
        collapses_spaces=collapses,
    )
    return Built(
        bpe.encode,
        lambda token: token.replace("▁", " ").encode(),
        strips_space=prefix or collapses,
        strips_spaces=collapses,
        adds_bos=True,
    )


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte: itself where printable, else the next from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [value for value in range(256) if value not in printable]
    return {
        **{chr(value): value for value in sorted(printable)},
        **{chr(0x100 + place): value for place, value in enumerate(rest)},
    }
