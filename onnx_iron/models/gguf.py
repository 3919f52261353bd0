"""A GGUF file as a checkpoint: its configuration, and its weights, dequantised one at a time."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH_NAMES, GGMLQuantizationType
from gguf.quants import dequantize
from gguf.tensor_mapping import get_tensor_name_map

from onnx_iron.dtypes import FLOATS, as_dtype
from onnx_iron.graph import Weight
from onnx_iron.models.decoder import DecoderConfig, Shape
from onnx_iron.models.family import known_families
from onnx_iron.models.gguf_config import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS, read_config
from onnx_iron.models.gguf_header import TensorInfo
from onnx_iron.models.gguf_parts import read_parts
from onnx_iron.models.kept_files import GGUF, HUGGINGFACE, packed
from onnx_iron.models.text import Text
from onnx_iron.models.weights import Weights

# Elements dequantised at once: the float32 intermediates of a block stay in the processor's cache.
_BLOCK_ELEMENTS = 1 << 17


class GGUFCheckpoint:
    """A model in a GGUF file, mapped into memory and never held as a whole.

    Of a model in several files, give the first; the others (``-00002-of-00003.gguf``) are read from
    its folder.

    Attributes:
        path: The file.
        metadata: The file's own keys and values (str, int, float, bool, or a list of them).
        family: The kind of model, by the architecture.
        config: The model's configuration. ``rope_interleaved`` is true of Llama: there, GGUF stores
            the query and key projections with their rows in the order of pairwise rotation.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not a whole GGUF file of a model that can be built; the text
            names the file, what is wrong with it, and what was expected.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        parts = read_parts(self.path)
        header, self._data = parts.header, parts.data
        self.metadata: Mapping[str, Any] = MappingProxyType(header.metadata)
        architecture, config = read_config(header, str(self.path))
        self.family = known_families()[architecture.model_type]
        self._tensors = header.tensors
        for kind in {info.type for info in self._tensors.values()}:
            _check_quantization(kind, self.path)
        kinds = {name: known for known, name in MODEL_ARCH_NAMES.items()}
        known = kinds[self.metadata["general.architecture"]]
        self._names = get_tensor_name_map(known, config.num_layers)
        self.config: DecoderConfig = self._with_rope_factors(config)
        # A build reads no tensor: it finds what is missing, and what has another shape.
        weights = self.weights(np.float32)
        self.family.build(self.config, weights, Shape(1))
        self.check_all_used(weights)

    @property
    def names(self) -> tuple[str, ...]:
        """GGUF's names of the tensors (``blk.0.attn_q.weight``), in the file's order."""
        return tuple(self._tensors)

    def weight(self, name: str, dtype: npt.DTypeLike) -> Weight:
        """Return a tensor as a lazy weight of float32 or bfloat16.

        Its shape is (out, in) for a matrix. Each ``load()`` dequantises it anew, in blocks of
        rows, in float32 and rounded once; nothing but the result is kept.

        Raises:
            ValueError: There is no such tensor.
            TypeError: Another dtype.
        """
        if name not in self._tensors:
            raise ValueError(f"{self.path}: there is no tensor {name!r}; see names")
        wanted = as_dtype(dtype)
        if wanted not in FLOATS:
            raise TypeError(f"weight {name!r}: dtype is {wanted}, expected float32 or bfloat16")
        info = self._tensors[name]
        return Weight(info.shape, wanted, lambda: self._load(info, wanted))

    def weights(self, dtype: npt.DTypeLike) -> Weights:
        """The weights by the names that the family asks for, as float32 or bfloat16."""
        wanted = as_dtype(dtype)

        def load(name: str) -> Weight:
            if name not in self._tensors:
                raise ValueError(
                    f"{self.path}: tensor {name!r} is missing; the file is not a whole "
                    f"{self.family.model_type} model"
                )
            return self.weight(name, wanted)

        return Weights(load, wanted, str(self.path), self._spelled)

    def check_all_used(self, weights: Weights) -> None:
        longrope = self.config.rope.scaling.get("rope_type") == "longrope"
        factors = (SHORT_FACTORS, LONG_FACTORS) if longrope else (ROPE_FACTORS,)
        weights.check_all_asked(self._tensors, lambda name: name in factors)

    @property
    def left_out(self) -> tuple[str, ...]:
        return ()

    def files(self) -> Mapping[str, bytes | None]:
        return {**dict.fromkeys(HUGGINGFACE), GGUF: packed(self.metadata)}

    def text(self) -> Text:
        from onnx_iron.models.gguf_text import gguf_text

        return gguf_text(self.metadata, str(self.path))

    def _spelled(self, name: str) -> str:
        """GGUF's name for a tensor of transformers."""
        return str(self._names.get_name(name, (".weight", ".bias")) or name)

    def _with_rope_factors(self, config: DecoderConfig) -> DecoderConfig:
        """The configuration with the factors that the file keeps in tensors, if it has any."""
        rope = config.rope
        if rope.scaling.get("rope_type") == "longrope":
            long, short = (
                self._factors(LONG_FACTORS, rope.dim),
                self._factors(SHORT_FACTORS, rope.dim),
            )
            scaling = {**rope.scaling, "long_factor": long.tolist(), "short_factor": short.tolist()}
            rope = dataclasses.replace(rope, scaling=scaling)
        elif ROPE_FACTORS in self._tensors:
            product = self._factors(ROPE_FACTORS, rope.dim) * np.asarray(rope.factors or 1.0)
            rope = dataclasses.replace(rope, factors=tuple(product.tolist()))
        return dataclasses.replace(config, rope=rope)

    def _factors(self, name: str, turned: int) -> npt.NDArray[np.float64]:
        """What each of the frequencies is divided by."""
        info, count = self._tensors[name], turned // 2
        if info.shape != (count,):
            raise ValueError(
                f"{self.path}: the shape of tensor {name!r} is {info.shape}, expected "
                f"{(count,)}, half of what turns of a head"
            )
        factors = self._load(info, np.dtype(np.float32))
        for index, factor in enumerate(factors.tolist()):
            if not (math.isfinite(factor) and factor > 0):
                raise ValueError(
                    f"{self.path}: tensor {name!r} has {factor} at {index}, expected a "
                    "positive number; download it again"
                )
        return factors.astype(np.float64)

    def _load(self, info: TensorInfo, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        *outer, width = info.shape
        stored = self._data[info.name][info.offset : info.offset + info.nbytes].reshape(
            int(np.prod(outer, dtype=np.int64)), -1
        )
        rows = max(1, _BLOCK_ELEMENTS // width)
        result = np.empty((len(stored), width), dtype)
        # A damaged block may hold any bits as its scale; infinities and NaNs are then what it says.
        with np.errstate(all="ignore"):
            for first in range(0, len(stored), rows):
                block = stored[first : first + rows]
                result[first : first + rows] = dequantize(block, info.type)
        return result.reshape(info.shape)


def _check_quantization(kind: GGMLQuantizationType, path: Path) -> None:
    """Dequantise one block of zeros: the package gguf keeps no list of what it can dequantise."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    try:
        with np.errstate(all="ignore"):
            dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        raise ValueError(
            f"{path}: a tensor is stored as {kind.name}, which can't be dequantised; expected "
            "F32, F16, BF16 or a quantisation such as Q4_0, Q4_1, Q8_0 or Q4_K"
        ) from None
