"""Reading GGUF files: their weights, their configuration, and every way they can be bad."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from gguf_files import HIDDEN, byte_level_vocabulary, llama_tensors, write_llama

from onnx_iron.models.gguf import GGUFCheckpoint

Q_NAME = "blk.1.attn_q.weight"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("gguf") / "small.gguf")


def test_the_configuration_is_that_of_the_metadata(small: Path) -> None:
    config = GGUFCheckpoint(small).config
    assert (config.hidden_size, config.intermediate_size, config.num_layers) == (64, 96, 2)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 16)
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert (config.rope.theta, config.rope_interleaved) == (10000.0, True)
    assert (config.context_length, config.tie_embeddings) == (128, True)
    assert config.vocab_size == len(byte_level_vocabulary()["tokenizer.ggml.tokens"])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_every_weight_is_what_the_gguf_package_dequantises(small: Path, dtype: Any) -> None:
    checkpoint = GGUFCheckpoint(small)
    tensors = gguf.GGUFReader(small).tensors
    assert len(tensors) == len(checkpoint.names)
    for tensor in tensors:
        weight = checkpoint.weight(tensor.name, dtype)
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(dtype)
        loaded = weight.load()
        assert loaded.dtype == weight.dtype == dtype
        assert loaded.shape == weight.shape == tuple(reversed(tensor.shape.tolist()))
        assert loaded.tobytes() == expected.tobytes()


def test_a_weight_larger_than_a_block_is_the_same_as_in_one_piece(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = GGUFCheckpoint(small)
    whole = checkpoint.weight(Q_NAME, np.float32).load()
    monkeypatch.setattr("onnx_iron.models.gguf._BLOCK_ELEMENTS", 3 * HIDDEN)
    assert checkpoint.weight(Q_NAME, np.float32).load().tobytes() == whole.tobytes()


def test_each_load_gives_an_array_of_its_own(small: Path) -> None:
    weight = GGUFCheckpoint(small).weight("output_norm.weight", np.float32)
    first = weight.load()
    first[:] = 0
    assert weight.load().any()


def test_an_output_projection_of_its_own_unties_the_embeddings(tmp_path: Path) -> None:
    vocabulary = len(byte_level_vocabulary()["tokenizer.ggml.tokens"])
    output = llama_tensors(vocabulary)["token_embd.weight"]
    path = write_llama(tmp_path / "untied.gguf", tensors={"output.weight": output})
    checkpoint = GGUFCheckpoint(path)
    assert not checkpoint.config.tie_embeddings
    assert checkpoint.weight("output.weight", np.float32).shape == (vocabulary, HIDDEN)


def test_keys_that_may_be_missing_have_their_defaults(tmp_path: Path) -> None:
    missing = {
        "llama.attention.head_count_kv": None,
        "llama.rope.freq_base": None,
        "llama.rope.dimension_count": None,
    }
    tensors = {
        f"blk.{layer}.attn_{name}.weight": llama_tensors(1)["blk.0.attn_q.weight"]
        for layer in range(2)
        for name in "kv"
    }
    config = GGUFCheckpoint(
        write_llama(tmp_path / "a.gguf", metadata=missing, tensors=tensors)
    ).config
    assert (config.num_kv_heads, config.head_dim, config.rope.theta) == (4, 16, 10000.0)


def test_an_unknown_weight_or_dtype_is_refused(small: Path) -> None:
    checkpoint = GGUFCheckpoint(small)
    with pytest.raises(ValueError, match=r"small.gguf: there is no tensor 'blk.9.x'"):
        checkpoint.weight("blk.9.x", np.float32)
    with pytest.raises(TypeError, match=r"dtype is int32, expected float32 or bfloat16"):
        checkpoint.weight(Q_NAME, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.block_count": None}, "'llama.block_count' is missing"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "rms_epsilon' is missing"),
        ({"llama.context_length": None}, "'llama.context_length' is missing"),
        ({"llama.block_count": 3}, r"'blk.2.attn_norm.weight' is missing"),
        ({"llama.block_count": 1}, r"'blk.1.* has no place in the model"),
        ({"llama.block_count": 4_000_000_000}, r"is 4000000000, expected 1..2147483647"),
        ({"llama.block_count": 2_000_000_000}, r"'blk.1999999999.attn_norm.weight' is missing"),
        ({"llama.block_count": 0}, r"block_count is 0, expected 1.."),
        ({"llama.block_count": "2"}, r"block_count is '2', expected a value of type int"),
        ({"llama.embedding_length": 128}, r"expected the head size, 32"),
        ({"llama.feed_forward_length": 97}, r"'blk.0.ffn_gate.weight' is \(96, 64\), expected"),
        ({"llama.attention.head_count_kv": 3}, r"head_count_kv is 3, expected a divisor of 4"),
        ({"llama.attention.head_count": [4, 4]}, r"head_count is \[4, 4\], expected .* int"),
        ({"llama.attention.head_count": 128}, "attention.key_length is 0, expected 1.."),
        ({"llama.attention.key_length": 15}, r"key_length.* is 15, expected an even number"),
        ({"llama.attention.value_length": 8}, r"value_length is 8, expected the head size, 16"),
        ({"llama.rope.dimension_count": 8}, r"dimension_count is 8, expected the head size, 16"),
        ({"llama.rope.freq_base": float("nan")}, r"freq_base is nan, expected a positive number"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "is -1.0, expected a positive"),
        ({"llama.rope.scaling.type": "yarn"}, r"scaling.type is 'yarn', expected 'none' or"),
        ({"llama.rope.scaling.factor": 4.0}, r"scaling.factor is 4.0, expected 1.0"),
        ({"llama.rope.scaling.attn_factor": 1.5}, r"attn_factor is 1.5, expected 1.0"),
        ({"llama.hidden_activation": "gelu"}, r"hidden_activation is 'gelu', expected 'silu'"),
        ({"llama.rope.new_key": 1}, r"llama.rope.new_key is 1, expected no such key"),
        ({"general.type": "adapter"}, r"general.type is 'adapter', expected 'model'"),
        ({"general.quantization_version": 1}, r"quantization_version is 1, expected 2"),
        ({"llama.rope.scale_linear": 2.0}, r"scale_linear is 2.0, expected 1.0"),
        ({"llama.expert_count": 8}, r"expert_count is 8, expected 0"),
        ({"llama.vocab_size": 100}, r"ggml.tokens is \d+, expected 100 at most"),
        ({"llama.vocab_size": 5000}, r"'token_embd.weight' is \(\d+, 64\), expected \(5000, 64\)"),
        ({"general.alignment": 2**31}, r"general.alignment is 2147483648, expected a power of two"),
        ({"general.alignment": 24}, r"general.alignment is 24, expected a power of two"),
    ],
)
def test_metadata_that_makes_no_model_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write_llama(tmp_path / "bad.gguf", metadata=change)
    with pytest.raises(ValueError, match=rf"bad.gguf: .*{message}"):
        GGUFCheckpoint(path)


@pytest.mark.parametrize(
    "change",
    [
        {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0},
        {"llama.expert_count": 0, "llama.attention.causal": True},
        {"llama.attention.key_length": 16, "llama.attention.value_length": 16},
        {"general.alignment": 64, "general.type": "model", "general.quantization_version": 2},
        {"llama.rope.scaling.attn_factor": 1.0, "llama.rope.scaling.yarn_ext_factor": 0.0},
        {"llama.rope.scaling.original_context_length": 64, "another.rope.scale": 3.0},
    ],
)
def test_metadata_that_changes_nothing_is_accepted(tmp_path: Path, change: dict[str, Any]) -> None:
    assert GGUFCheckpoint(write_llama(tmp_path / "good.gguf", metadata=change)).names


def keys_of_a_model() -> list[str]:
    """The keys of an architecture that the package gguf knows."""
    groups = [
        value
        for name, value in vars(gguf.constants.Keys).items()
        if isinstance(value, type) and name != "General"
    ]
    groups.append(gguf.constants.Keys.Attention.Indexer)
    keys = {value for group in groups for value in vars(group).values() if isinstance(value, str)}
    return sorted(
        key.format(arch="llama", dense="dense_2")
        for key in keys
        if key.startswith("{arch}.") and key != "{arch}.rope.scaling.finetuned"
    )


@pytest.mark.parametrize("key", keys_of_a_model())
def test_every_key_of_a_model_is_read_or_refused_by_name(tmp_path: Path, key: str) -> None:
    plain = GGUFCheckpoint(write_llama(tmp_path / "plain.gguf")).config
    for value in (3, 0.37, "something"):
        path = write_llama(tmp_path / "a.gguf", metadata={key: value})
        refusal = refused(path)
        if refusal is None:
            # What the model is; or how long a text it was trained on before it was stretched.
            assert GGUFCheckpoint(path).config != plain or key.endswith("original_context_length")
        else:
            # A size that doesn't fit is refused by the tensor or the size that it doesn't fit.
            assert key in refusal or value == 3


def refused(path: Path) -> str | None:
    """Why the file is refused."""
    try:
        GGUFCheckpoint(path)
    except ValueError as error:
        return str(error)
    return None


ROPE = {"rope_theta": 500000.0, "partial_rotary_factor": 1.0}
LLAMA3 = {
    **ROPE,
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("scaling", [LLAMA3, {**ROPE, "rope_type": "linear", "factor": 4.0}])
def test_scaled_rotary_angles_are_those_of_transformers(
    tmp_path: Path, scaling: dict[str, Any]
) -> None:
    from transformers import LlamaConfig as TransformersConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = TransformersConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=128, rope_parameters=scaling
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(100)[None])
    plain = 500000.0 ** (-np.arange(0, 16, 2) / 16)
    metadata: dict[str, Any] = {"llama.rope.freq_base": 500000.0}
    tensors: dict[str, Any] = {}
    if scaling["rope_type"] == "linear":
        metadata |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    else:  # as the converter writes them: what each plain frequency is divided by
        scaled = LlamaRotaryEmbedding(config).inv_freq.numpy().astype(np.float64)
        assert (plain / scaled > 2).any()
        tensors["rope_freqs.weight"] = ((plain / scaled).astype(np.float32), Kind.F32)
    path = write_llama(tmp_path / "scaled.gguf", metadata=metadata, tensors=tensors)
    angles = GGUFCheckpoint(path).config.rope.angles(100)
    # transformers multiplies positions and frequencies in float32: an angle of 99 is off by 6e-6.
    assert np.abs(angles[:, 0::2] - cos[0, :, :8].numpy()).max() < 2e-5
    assert np.abs(angles[:, 1::2] - sin[0, :, :8].numpy()).max() < 2e-5


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "a.gguf", architecture="gptneox")
    with pytest.raises(ValueError, match=r"general.architecture is 'gptneox', expected 'llama' or"):
        GGUFCheckpoint(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("output_norm.weight", None, "'output_norm.weight' is missing"),
        ("token_embd.weight", None, "'token_embd.weight' is missing"),
        ("rope_freqs.weight", (np.ones(4, np.float32), Kind.F32), r"is \(4,\), expected \(8,\)"),
        ("rope_freqs.weight", (np.zeros(8, np.float32), Kind.F32), "has 0.0 at 0, expected a pos"),
        ("blk.0.attn_q.bias", (np.ones(64, np.float32), Kind.F32), "has no place"),
        (Q_NAME, (np.ones((64, 32), np.float32), Kind.F32), r"is \(64, 32\), expected \(64, 64\)"),
        (Q_NAME, (np.ones((1, 64, 64), np.float32), Kind.F32), r"is \(1, 64, 64\), expected"),
    ],
)
def test_tensors_that_make_no_model_are_refused(
    tmp_path: Path, name: str, content: Any, message: str
) -> None:
    path = write_llama(tmp_path / "bad.gguf", tensors={name: content})
    with pytest.raises(ValueError, match=rf"bad.gguf: .*{message}"):
        GGUFCheckpoint(path)


def test_a_type_that_cannot_be_dequantised_is_refused(tmp_path: Path, small: Path) -> None:
    data = bytearray(small.read_bytes())
    at = data.index(b"output_norm.weight") + len(b"output_norm.weight")
    assert struct.unpack_from("<IQI", data, at) == (1, HIDDEN, 0)
    for kind, message in ((24, "stored as I8"), (9999, "type 9999, which the installed")):
        struct.pack_into("<I", data, at + 12, kind)
        path = tmp_path / "type.gguf"
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"type.gguf: .*{message}"):
            GGUFCheckpoint(path)


def test_what_is_not_a_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.gguf: there is no such file"):
        GGUFCheckpoint(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="not a file"):
        GGUFCheckpoint(tmp_path)
    path = tmp_path / "a.gguf"
    for content, message in [
        (b"", "the file is empty"),
        (b"GG", "it is not a GGUF file"),
        (b"PK\3\4" + bytes(100), r"begins with b'PK.*', expected b'GGUF'"),
        (b"GGUF\1\0\0\0" + bytes(100), "version is 1, expected 2 or 3"),
        (b"GGUF\0\0\0\3" + bytes(100), "a big-endian file"),
        (b"GGUF\3\0\0\0" + b"\xff" * 100, r"number of tensors is \d+, and the rest .* room for"),
        (b"GGUF\3\0\0\0" + bytes(16), "'general.architecture' is missing"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            GGUFCheckpoint(path)


def test_arrays_longer_than_the_file_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    for kind in (0, 4, 8, 12):
        entry = struct.pack("<Q1sIIQ", 1, b"k", 9, kind, 2**60)
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry + bytes(64))
        with pytest.raises(ValueError, match=r"length of k is 1152921504606846976, and the rest"):
            GGUFCheckpoint(path)


def test_a_header_far_beyond_any_model_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tail = bytes(8 << 20)
    string = struct.pack("<Q1sIQ", 1, b"k", 8, 100 << 20)
    for header, message in [
        (struct.pack("<IQQ", 3, 100_000, 0), r"number of tensors is 100000, expected 65536"),
        (struct.pack("<IQQ", 3, 0, 100_000), r"metadata keys is 100000, expected 65536"),
        (struct.pack("<IQQ", 3, 0, 1) + string, r"k needs 104857600 bytes .* expected a header"),
    ]:
        path.write_bytes(b"GGUF" + header + tail)
        with path.open("r+b") as file:
            file.truncate(200 << 20)
        with pytest.raises(ValueError, match=message):
            GGUFCheckpoint(path)


def test_a_head_size_beyond_the_tensors_takes_no_memory(tmp_path: Path) -> None:
    names = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    sizes = {f"llama.{name}": 2**31 - 2 for name in names}
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    path = write_llama(tmp_path / "a.gguf", metadata={**sizes, **linear})
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"attn_q.weight' is \(64, 64\), expected"):
        GGUFCheckpoint(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32e6


def test_nested_arrays_and_repeated_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    entry = struct.pack("<Q1sIB", 1, b"k", 0, 5)
    for count, entries, message in [
        (1, struct.pack("<Q1sIIQ", 1, b"k", 9, 9, 1), "array of type 9, expected numbers"),
        (1, struct.pack("<Q1sI", 1, b"k", 77), "type 77, expected one of GGUF's"),
        (1, struct.pack("<Q1sI", 1, b"\xff", 0), "not UTF-8"),
        (2, entry * 2, "'k' occurs twice"),
    ]:
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, count) + entries + bytes(64))
        with pytest.raises(ValueError, match=message):
            GGUFCheckpoint(path)
