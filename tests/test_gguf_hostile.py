"""GGUF files that are damaged or made to do harm: they are refused by name, and take little."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from gguf_files import (
    byte_level_vocabulary,
    llama_metadata,
    sentencepiece_vocabulary,
    write_llama,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnx_iron.models.chat import chat_template
from onnx_iron.models.gguf import GGUFCheckpoint
from onnx_iron.models.tokenizer import Tokenizer

# What a value may be turned into; a list stands for one with as many entries as there were, too.
VALUES: list[Any] = [0, 1, 3, 2**31, 2**32 - 1, 0.0, 1e-45, float("nan"), float("inf"), True]
VALUES += ["x", "\0", "{{", [0], [1, 2], ["a"], ["a b", "▁"], [float("nan")], [True], ["<0x41>"]]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("gguf") / "small.gguf")


def use(path: Path) -> None:
    """Everything that is done with a checkpoint, on a file that may be bad."""
    checkpoint = GGUFCheckpoint(path)
    for name in checkpoint.names:
        assert checkpoint.weight(name, "bfloat16").load().size
    tokenizer = Tokenizer(checkpoint.metadata, str(path))
    assert tokenizer.decode(tokenizer.encode("the keeper's lamp, 12 😀")) is not None
    template = chat_template(checkpoint.metadata, str(path))
    if template is not None:
        template.render([{"role": "user", "content": "hello"}])


def assert_refused_by_name(path: Path) -> str | None:
    """Use a file; what refuses it, if anything does, names it."""
    try:
        use(path)
    except ValueError as error:
        refusal = str(error)
    else:
        return None
    assert refusal.startswith(f"{path}: ")
    return refusal


def test_a_file_cut_short_anywhere_is_refused_by_name(tmp_path: Path, small: Path) -> None:
    data = small.read_bytes()
    path = tmp_path / "cut.gguf"
    # The last tensor is padded to the alignment, and a reader needs no padding.
    ends = GGUFCheckpoint(small)
    last = max(info.offset + info.nbytes for info in ends._tensors.values())
    for size in [*range(1, 400), *range(400, last, 997), last - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"cut.gguf: "):
            GGUFCheckpoint(path)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_flipped_bytes_do_no_more_than_be_refused_by_name(
    tmp_path: Path, small: Path, data: st.DataObject
) -> None:
    content = bytearray(small.read_bytes())
    header = min(i.offset for i in GGUFCheckpoint(small)._tensors.values())
    position = st.one_of(
        st.integers(0, 1200), st.integers(header - 1500, header), st.integers(0, len(content) - 1)
    )
    for at, value in data.draw(st.lists(st.tuples(position, st.integers(0, 255)), min_size=1)):
        content[at] = value
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    assert_refused_by_name(path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tail=st.binary(max_size=300), version=st.sampled_from([2, 3]))
def test_random_bytes_after_the_magic_are_refused_by_name(
    tmp_path: Path, tail: bytes, version: int
) -> None:
    path = tmp_path / "random.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", version) + tail)
    assert_refused_by_name(path)


def every_key(vocabulary: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the small model, with those keys too that may be missing."""
    return {
        **llama_metadata(vocabulary),
        "general.alignment": 32,
        "general.type": "model",
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        "llama.rope.scaling.factor": 2.0,
        "llama.rope.scaling.type": "linear",
        "llama.vocab_size": len(vocabulary["tokenizer.ggml.tokens"]),
        "split.count": 1,
        "split.no": 0,
        "split.tensors.count": 20,
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.eot_token_id": 2,
        "tokenizer.ggml.padding_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
    }


@pytest.mark.parametrize("vocabulary", [byte_level_vocabulary(), sentencepiece_vocabulary()])
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_key_of_any_value_is_used_or_refused_by_name(
    tmp_path: Path, vocabulary: dict[str, Any], data: st.DataObject
) -> None:
    metadata = every_key(vocabulary)
    key = data.draw(st.sampled_from(sorted(metadata)))
    value = data.draw(st.sampled_from(VALUES))
    if isinstance(value, list) and isinstance(metadata[key], list) and data.draw(st.booleans()):
        value = (value * len(metadata[key]))[: len(metadata[key])]
    path = write_llama(
        tmp_path / "mutated.gguf", vocabulary=vocabulary, metadata={**metadata, key: value}
    )
    refusal = assert_refused_by_name(path)
    if refusal is not None and value not in (1, 3):  # sizes, which the tensors refuse
        assert key in refusal or (value == "{{" and "chat template" in refusal)
