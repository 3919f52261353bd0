"""What a checkpoint gives, in whatever files it came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from onnx_iron.models.family import Family
from onnx_iron.models.text import Text
from onnx_iron.models.weights import Weights


class Checkpoint(Protocol):
    """A model's configuration, weights and tokenizer.

    Attributes:
        path: where it is.
        family: its kind.
        config: what its family reads of the configuration; all have ``context_length``.
    """

    path: Path
    family: Family
    config: Any

    def weights(self, dtype: npt.DTypeLike) -> Weights:
        """The weights by the names that the family asks for, as float32 or bfloat16."""
        ...

    def check_all_used(self, weights: Weights) -> None:
        """Refuse a tensor that nobody asked for."""
        ...

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of tensors that the family's graph is known to have no use for."""
        ...

    def files(self) -> Mapping[str, bytes | None]:
        """What an exported folder keeps of it beside the model: tokenizer, chat template,
        generation settings. None for a file that must not be there.
        """
        ...

    def text(self) -> Text:
        """Its tokenizer and what goes with it."""
        ...


# A file of a Hugging Face folder, given in place of the folder.
_PARTS = (".safetensors", ".json", ".bin", ".pt", ".pth")


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A GGUF file, or a Hugging Face folder.

    Raises:
        FileNotFoundError: nothing is there, or a part of it is missing.
        ValueError: what is there is no checkpoint that can be built.
    """
    path = Path(path)
    if path.is_dir():
        from onnx_iron.models.huggingface import HuggingFaceFolder

        return HuggingFaceFolder(path)
    if not path.exists():
        what = "a link to nothing" if path.is_symlink() else "no such file or folder"
        raise FileNotFoundError(
            f"{path}: {what}; give a Hugging Face folder, or the path of a GGUF file"
        )
    if path.suffix in _PARTS:
        raise ValueError(
            f"{path} is a part of a checkpoint; give the folder that it is in, {path.parent}"
        )
    if path.suffix == ".onnx":
        raise ValueError(f"{path} is exported already; give a checkpoint, or open it as it is")
    from onnx_iron.models.gguf import GGUFCheckpoint

    return GGUFCheckpoint(path)
