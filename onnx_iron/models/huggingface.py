"""A Hugging Face folder as a checkpoint: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from onnx_iron.dtypes import FLOAT32, FLOATS, Array, as_dtype
from onnx_iron.graph import Weight
from onnx_iron.models.family import family_of
from onnx_iron.models.fields import Fields
from onnx_iron.models.json_file import read_object
from onnx_iron.models.kept_files import HUGGINGFACE
from onnx_iron.models.text import Text
from onnx_iron.models.weights import Weights

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = ("F32", "F16", "BF16")
# Elements converted at once: the intermediates of a block stay in the processor's cache.
_BLOCK_ELEMENTS = 1 << 20
# Tables that a model can make itself, and that older checkpoints have saved.
_TABLES = (".rotary_emb.inv_freq", ".masked_bias", ".attn.bias", "embeddings.position_ids")


@dataclass(frozen=True)
class _Tensor:
    file: Path
    shape: tuple[int, ...]
    dtype: str


class HuggingFaceFolder:
    """A model in a folder, as ``save_pretrained`` writes it; no tensor is read before it is asked
    for, nor kept.

    Attributes:
        path: The folder.
        family: The kind of model, by ``model_type``.
        config: What the family reads of config.json.

    Raises:
        FileNotFoundError: config.json, the weights or one of their parts is not there.
        ValueError: The folder is not a whole model that can be built; the text names the file, what
            is wrong with it, and what was expected.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        source = self.path / "config.json"
        if not source.is_file():
            raise FileNotFoundError(
                f"{self.path} has no config.json; give a folder as save_pretrained writes it, or a "
                "GGUF file"
            )
        values = read_object(source)
        self.family = family_of(values, str(source))
        kind = self.family.model_type
        fields = Fields(values, str(source), kind)
        fields.idle("model_type", "architectures")
        fields.neutral(is_encoder_decoder=self.family.model_type == "whisper", is_decoder=False)
        self.config: Any = self.family.read(fields)
        fields.check_all_read()
        self._tensors = dict(_tensors(self.path))

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names."""
        return tuple(self._tensors)

    def weights(self, dtype: npt.DTypeLike) -> Weights:
        wanted = as_dtype(dtype)
        if wanted not in FLOATS:
            raise TypeError(f"weights: dtype is {wanted}, expected float32 or bfloat16")
        return Weights(
            lambda name: self._weight(name, wanted),
            wanted,
            str(self.path),
            self._spelled,
            lambda name: self._weight(name, FLOAT32),
        )

    def check_all_used(self, weights: Weights) -> None:
        tied = bool(getattr(self.config, "tie_embeddings", False))

        def idle(name: str) -> bool:
            return (
                name.endswith(_TABLES)
                or self._is_unused(name)
                or (tied and name == "lm_head.weight")
            )

        weights.check_all_asked(self._tensors, idle)

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(filter(self._is_unused, self._tensors))

    def files(self) -> Mapping[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name in HUGGINGFACE:
            file = self.path / name
            found[name] = file.read_bytes() if file.is_file() else None
        return found

    def text(self) -> Text:
        """The tokenizer and what goes with it.

        Raises:
            FileNotFoundError: There is no tokenizer.json.
        """
        from onnx_iron.models.huggingface_text import huggingface_text

        return huggingface_text(self.path)

    def _spelled(self, name: str) -> str:
        """The checkpoint's name for a tensor of the family."""
        whole = self.family.prefix + name
        return whole if whole in self._tensors else name

    def _is_unused(self, name: str) -> bool:
        return name.removeprefix(self.family.prefix).startswith(self.family.unused)

    def _weight(self, name: str, dtype: np.dtype[Any]) -> Weight:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ValueError(
                f"{self.path}: tensor {name!r} is missing, and the configuration asks for it; the "
                "checkpoint is not whole, or of a variant that isn't implemented"
            )
        if tensor.dtype not in _DTYPES:
            remedy = "use a checkpoint that isn't quantised"
            if tensor.dtype == "F64":
                remedy = "save the model in one of these (model.float())"
            raise ValueError(
                f"{self.path}: tensor {name!r} is stored as {tensor.dtype}, expected "
                f"{', '.join(_DTYPES)}; {remedy}"
            )
        return Weight(tensor.shape, dtype, lambda: _load(tensor, name, dtype))


def _load(tensor: _Tensor, name: str, dtype: np.dtype[Any]) -> Array:
    """The elements, converted in blocks of rows. The file is mapped for this long only."""
    result = np.empty(tensor.shape, dtype)
    with _opened(tensor.file) as file:
        part = file.get_slice(name)
        if not tensor.shape:
            result[...] = file.get_tensor(name)
            return result
        width = max(1, result.size // max(1, tensor.shape[0]))
        rows = max(1, _BLOCK_ELEMENTS // width)
        with np.errstate(over="ignore"):
            for first in range(0, tensor.shape[0], rows):
                last = min(first + rows, tensor.shape[0])
                result[first:last] = part[first:last]
    return result


def _tensors(folder: Path) -> Iterator[tuple[str, _Tensor]]:
    """Every tensor of the folder, by name."""
    index = folder / _INDEX
    if not index.is_file():
        if not (folder / _WHOLE).is_file():
            raise FileNotFoundError(_no_weights(folder))
        yield from _of_file(folder / _WHOLE).items()
        return
    placed = read_object(index).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(v, str) for v in placed.values()):
        raise ValueError(f"{index}: 'weight_map' is no map of tensors to files; download it again")
    parts: dict[str, dict[str, _Tensor]] = {}
    for name, part in placed.items():
        if Path(part).name != part:
            raise ValueError(f"{index}: tensor {name!r} is in {part!r}, expected a file beside it")
        if part not in parts:
            if not (folder / part).is_file():
                raise FileNotFoundError(
                    f"{folder / part} is not there, and {_INDEX} names it; download it too"
                )
            parts[part] = _of_file(folder / part)
        if name not in parts[part]:
            raise ValueError(f"{folder / part} has no tensor {name!r}, which {_INDEX} names")
        yield name, parts[part][name]
    for part, tensors in parts.items():
        for name in tensors:
            if name not in placed:
                raise ValueError(
                    f"{folder / part} has a tensor {name!r} that {_INDEX} doesn't name"
                )
            if placed[name] != part:
                raise ValueError(
                    f"{folder}: tensor {name!r} is in {placed[name]}, as {_INDEX} says, and in "
                    f"{part} too; which is the model's can't be told, download it again"
                )


def _of_file(path: Path) -> dict[str, _Tensor]:
    with _opened(path) as file:
        found = {}
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            part = file.get_slice(name)
            found[name] = _Tensor(path, tuple(part.get_shape()), part.get_dtype())
        return found


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="np") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}); download it again"
        ) from error


def _no_weights(folder: Path) -> str:
    if any(folder.glob("*.onnx")):
        return f"{folder} is exported already; give the checkpoint itself, or open it as it is"
    others = sorted(
        file.name
        for pattern in ("*.bin", "*.pt", "*.pth", "*.gguf")
        for file in folder.glob(pattern)
    )
    remedy = "download it whole"
    if any((folder / name).is_symlink() for name in (_WHOLE, _INDEX)):
        remedy = "one is a link to a file that is gone; download it again"
    elif others:
        remedy = f"it has {others[0]}; save the model as safetensors (save_pretrained does)"
        if others[0].endswith(".gguf"):
            remedy = f"give the file itself, {others[0]}"
    return f"{folder} has neither {_WHOLE} nor {_INDEX}: {remedy}"
