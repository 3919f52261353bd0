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
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from onnx_iron.dtypes import FLOATS, as_dtype
from onnx_iron.graph import Weight
from onnx_iron.models.gguf_config import ROPE_FACTORS, read_config
from onnx_iron.models.gguf_header import TensorInfo
from onnx_iron.models.gguf_parts import read_parts
from onnx_iron.models.llama import LlamaConfig

# Elements dequantised at once: the float32 intermediates of a block stay in the processor's cache.
_BLOCK_ELEMENTS = 1 << 17


class GGUFCheckpoint:
    """A Llama model in a GGUF file, mapped into memory and never held as a whole.

    Of a model in several files, give the first; the others (``-00002-of-00003.gguf``) are read from
    its folder.

    Attributes:
        path: The file.
        metadata: The file's own keys and values (str, int, float, bool, or a list of them).
        config: The model's configuration. ``rope_interleaved`` is true: GGUF stores the query and
            key projections with their rows in the order of pairwise rotation.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not a whole GGUF file of a Llama model that can be built; the text
            names the file, what is wrong with it, and what was expected.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        parts = read_parts(self.path)
        header, self._data = parts.header, parts.data
        self.metadata: Mapping[str, Any] = MappingProxyType(header.metadata)
        config = read_config(header, str(self.path))
        self._tensors = header.tensors
        for kind in {info.type for info in self._tensors.values()}:
            _check_quantization(kind, self.path)
        self.config = self._with_rope_factors(config)

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

    def _with_rope_factors(self, config: LlamaConfig) -> LlamaConfig:
        """The configuration with the factors that the file keeps in a tensor, if it has that."""
        if ROPE_FACTORS not in self._tensors:
            return config
        factors = self._load(self._tensors[ROPE_FACTORS], np.dtype(np.float32)).tolist()
        for index, factor in enumerate(factors):
            if not (math.isfinite(factor) and factor > 0):
                raise ValueError(
                    f"{self.path}: tensor {ROPE_FACTORS!r} has {factor} at {index}, expected a "
                    "positive number; download it again"
                )
        before = config.rope_factors or (1.0,) * len(factors)
        product = tuple(a * b for a, b in zip(before, factors, strict=True))
        return dataclasses.replace(config, rope_factors=product)

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
