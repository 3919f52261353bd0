"""GGUF models in several files, as the package gguf splits them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_files import HIDDEN, byte_level_vocabulary, llama_tensors, write_llama

from onnx_iron.models.gguf import GGUFCheckpoint


@pytest.fixture
def untied() -> dict[str, Any]:
    """An output projection of its own: it stands at the end, in the last part."""
    vocabulary = len(byte_level_vocabulary()["tokenizer.ggml.tokens"])
    return {"output.weight": llama_tensors(vocabulary)["token_embd.weight"]}


@pytest.mark.parametrize("tensors_a_part", [1, 5, 20])
def test_parts_are_the_model_that_they_were_split_from(
    tmp_path: Path, untied: dict[str, Any], tensors_a_part: int
) -> None:
    whole = GGUFCheckpoint(write_llama(tmp_path / "whole.gguf", tensors=untied))
    first = write_llama(tmp_path / "split.gguf", tensors=untied, tensors_a_part=tensors_a_part)
    split = GGUFCheckpoint(first)
    assert len(list(tmp_path.glob("split-*"))) == -(-len(whole.names) // tensors_a_part)
    assert split.config == whole.config
    assert not split.config.tie_embeddings
    assert set(split.names) == set(whole.names)
    for name in whole.names:
        ours, expected = (c.weight(name, np.float32).load() for c in (split, whole))
        assert ours.tobytes() == expected.tobytes()


def remove_the_last(parts: list[Path]) -> None:
    parts[-1].unlink()


def empty_the_last(parts: list[Path]) -> None:
    parts[-1].write_bytes(b"")


def cut_the_last(parts: list[Path]) -> None:
    parts[-1].write_bytes(parts[-1].read_bytes()[:-4000])


def exchange_two(parts: list[Path]) -> None:
    second, third = parts[1].read_bytes(), parts[2].read_bytes()
    parts[1].write_bytes(third)
    parts[2].write_bytes(second)


def rename_the_first(parts: list[Path]) -> None:
    parts[0].rename(parts[0].with_name("model.gguf"))


def rewrite(metadata: dict[str, Any], tensor: str) -> Callable[[list[Path]], None]:
    """Put another file in the second part's place."""

    def change(parts: list[Path]) -> None:
        writer = gguf.GGUFWriter(parts[1], "llama")
        if "general.architecture" not in metadata:
            writer.kv_data[0].clear()
        for key, value in metadata.items():
            if key != "general.architecture":
                writer.add_uint32(key, value)
        writer.add_tensor(tensor, np.ones(HIDDEN, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_the_last, r"split.count is 5, and .*-00005-of-00005.gguf is missing"),
        (empty_the_last, r"-00005-of-00005.gguf: the file is empty"),
        (cut_the_last, r"-00005-of-00005.gguf: tensor .* ends at byte"),
        (exchange_two, r"-00002-of-00005.gguf: split.no is 2, expected 1"),
        (rename_the_first, r"model.gguf: split.count is 5, expected a file named NAME-00001-of"),
        (rewrite({"split.count": 5}, "x"), r"00002-of-00005.gguf: split.no is None, expected 1"),
        (rewrite({"split.no": 1, "split.count": 4}, "x"), r"split.count is 4, expected 5"),
        (
            rewrite({"split.no": 1, "split.count": 5}, "token_embd.weight"),
            r"00002-of-00005.gguf: tensor 'token_embd.weight' is in an earlier part too",
        ),
        (
            rewrite({"split.no": 1, "split.count": 5, "llama.block_count": 7}, "x"),
            r"metadata key 'llama.block_count' is not as in .*-00001-of-00005.gguf",
        ),
        (
            rewrite({"split.no": 1, "split.count": 5}, "x"),
            r"split.tensors.count is 21, and 5 part\(s\) hold 17 tensors",
        ),
    ],
)
def test_parts_that_make_no_whole_are_refused(
    tmp_path: Path, untied: dict[str, Any], change: Callable[[list[Path]], None], message: str
) -> None:
    first = write_llama(tmp_path / "split.gguf", tensors=untied, tensors_a_part=5)
    change(sorted(tmp_path.glob("split-*")))
    (path,) = [first] if first.exists() else tmp_path.glob("model.gguf")
    with pytest.raises(ValueError, match=message):
        GGUFCheckpoint(path)


def test_a_later_part_alone_is_refused(tmp_path: Path, untied: dict[str, Any]) -> None:
    first = write_llama(tmp_path / "split.gguf", tensors=untied, tensors_a_part=5)
    second = first.with_name(first.name.replace("-00001-", "-00002-"))
    with pytest.raises(ValueError, match=r"00002.*: split.no is 1, expected 0, the first of 5"):
        GGUFCheckpoint(second)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"split.count": 2}, r"split.count is 2, expected a file named NAME-00001-of-00002.gguf"),
        ({"split.count": 4_000_000_000}, r"split.count is 4000000000, expected 0..65535"),
        ({"split.count": "2"}, r"split.count is '2', expected 0..65535"),
        ({"split.tensors.count": 100}, r"split.tensors.count is 100, and 1 part\(s\) hold 20"),
    ],
)
def test_a_single_file_that_claims_parts_is_refused(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    path = write_llama(tmp_path / "one.gguf", metadata=metadata)
    with pytest.raises(ValueError, match=rf"one.gguf: {message}"):
        GGUFCheckpoint(path)


def test_a_single_file_may_say_that_it_is_one(tmp_path: Path) -> None:
    metadata = {"split.no": 0, "split.count": 1, "split.tensors.count": 20}
    assert GGUFCheckpoint(write_llama(tmp_path / "one.gguf", metadata=metadata)).names
