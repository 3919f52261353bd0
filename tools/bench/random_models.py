"""Checkpoints of random weights with a real model's shape, in a Hugging Face folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.graph import Weight
from onnx_iron.models.decoder import Shape
from onnx_iron.models.family import family_of
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights

_LFM2: dict[str, Any] = {
    "model_type": "lfm2",
    "architectures": ["Lfm2ForCausalLM"],
    "conv_L_cache": 3,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "max_position_embeddings": 128000,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rope_theta": 1000000.0,
    "vocab_size": 65536,
}
_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}
SHAPES: dict[str, dict[str, Any]] = {
    "LFM2-350M": {**_LFM2, "hidden_size": 1024, "block_ff_dim": 6656, "num_attention_heads": 16},
    "LFM2-1.2B": {**_LFM2, "hidden_size": 2048, "block_ff_dim": 12288, "num_attention_heads": 32},
    "SmolLM2-135M": {
        **_LLAMA,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    },
    "SmolLM2-360M": {
        **_LLAMA,
        "hidden_size": 960,
        "intermediate_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 15,
        "num_key_value_heads": 5,
        "vocab_size": 49152,
    },
    "Llama-3.2-1B": {
        **_LLAMA,
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
}
# For --quick: as a llama, and nothing in it large.
TINY: dict[str, Any] = {
    **_LLAMA,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
}


def write_folder(folder: Path, values: dict[str, Any]) -> None:
    """A checkpoint of random bfloat16 weights: config.json, and files of 40 tensors each."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))
    placed = {}
    for number, part in enumerate(_parts(list(tensors_of(values).items()))):
        file = f"model-{number:05}.safetensors"
        save_file({name: _random(shape) for name, shape in part}, folder / file, {"format": "pt"})
        placed.update(dict.fromkeys((name for name, _ in part), file))
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def tensors_of(values: dict[str, Any]) -> Mapping[str, tuple[int, ...]]:
    """The tensors that a configuration asks for."""
    family = family_of(values, "config.json")
    config = family.read(Fields(values, "config.json", family.model_type))
    shapes = _Shapes(BFLOAT16)
    family.build(config, shapes, Shape(1))
    return shapes.asked


class _Shapes(Weights):
    """Weights of whatever shape is asked for."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(lambda name: self._blank(self.asked[name]), dtype, "no checkpoint")

    def _blank(self, shape: tuple[int, ...]) -> Weight:
        return Weight(shape, self.dtype, lambda: np.zeros(shape, self.dtype))


def _parts(tensors: list[Any], count: int = 40) -> Iterator[list[Any]]:
    for begin in range(0, len(tensors), count):
        yield tensors[begin : begin + count]


def _random(shape: tuple[int, ...]) -> Any:
    if len(shape) == 1:
        return np.ones(shape, BFLOAT16)
    numbers = np.random.default_rng(math.prod(shape)).random(shape, np.float32)
    return ((numbers - 0.5) * math.sqrt(12 / shape[-1])).astype(BFLOAT16)
