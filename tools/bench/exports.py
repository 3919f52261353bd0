"""Time and peak memory of exporting a Hugging Face folder of a real model's shape, and its speed.

``python -m onnx_iron.tools.bench.exports [--shape LFM2-350M] [--dtype bfloat16] [--folder DIR]``

The folder is made of random weights where ``--folder`` names no other. The export runs in a process
of its own, whose peak of resident memory is read from the kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from onnx_iron import Session
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
_EXPORT = """
import json, sys, time
from pathlib import Path
from onnx_iron.models.checkpoint import open_checkpoint
from onnx_iron.models.exported import export_checkpoint
source, target, dtype, context, chunk = sys.argv[1:]
began = time.perf_counter()
report = export_checkpoint(
    open_checkpoint(source), target, dtype=dtype, context=int(context), chunk=int(chunk)
)
took = time.perf_counter() - began
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(json.dumps({"seconds": took, "peak": peak, "bytes": report.total_bytes}))
"""


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="LFM2-350M")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--folder", type=Path, help="a Hugging Face folder to export instead")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=16, help="tokens decoded after it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, target = arguments.folder or Path(scratch) / "in", Path(scratch) / "out"
        if arguments.folder is None:
            write_folder(source, SHAPES[arguments.shape])
        options = [source, target, arguments.dtype, arguments.context, arguments.chunk]
        command = [sys.executable, "-c", _EXPORT, *map(str, options)]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(made.stdout)
        began = time.perf_counter()
        session = Session(target)
        opened = time.perf_counter() - began
        prefill, decode = speeds(session, arguments.prompt, arguments.tokens)
    limit = 1.1 * found["bytes"] + 300e6
    print(
        f"{arguments.shape if arguments.folder is None else source} {arguments.dtype}: "
        f"{found['bytes'] / 1e6:.0f} MB exported in {found['seconds']:.1f} s, peak memory "
        f"{found['peak'] / 1e6:.0f} MB ({found['peak'] / limit:.2f} of exported + 10 % + 300 MB), "
        f"opened in {opened:.2f} s, prefill {prefill:.0f} tok/s, decode {decode:.1f} tok/s"
    )


def write_folder(folder: Path, values: dict[str, Any]) -> None:
    """A checkpoint of random bfloat16 weights: config.json, and files of 40 tensors each."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))
    placed = {}
    for number, part in enumerate(_parts(list(tensors_of(values).items()))):
        file = f"model-{number:05}.safetensors"
        save_file({name: _random(shape) for name, shape in part}, folder / file)
        placed.update(dict.fromkeys((name for name, _ in part), file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))


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


def speeds(session: Session, prompt: int, tokens: int) -> tuple[float, float]:
    """Tokens a second of a prompt, and of the steps after it."""
    ids = np.arange(prompt, dtype=np.int32)
    session.prefill(input_ids=ids[: min(prompt, 8)])
    session.reset()
    began = time.perf_counter()
    session.prefill(input_ids=ids)
    middle = time.perf_counter()
    for token in range(tokens):
        session.decode(input_ids=np.array([token], np.int32))
    return prompt / (middle - began), tokens / (time.perf_counter() - middle)


if __name__ == "__main__":
    main()
