"""The keys of a GGUF file's metadata, read with their types checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onnx_iron.models.gguf_header import TensorInfo


class Keys:
    """Metadata read with its type checked."""

    def __init__(self, metadata: Mapping[str, Any], source: str, architecture: str) -> None:
        self.metadata = metadata
        self.source = source
        self.architecture = architecture

    def error(self, what: str, value: Any, expected: str) -> ValueError:
        return ValueError(f"{self.source}: {what} is {_short(value)}, expected {expected}")

    def any(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.metadata.get(key, default)
        if value is None:
            raise ValueError(
                f"{self.source}: metadata key {key!r} is missing, and the model can't be built "
                "without it; convert the model again"
            )
        if type(value) is not kind:
            raise self.error(key, value, f"a value of type {kind.__name__}")
        return value

    def size(self, name: str, default: int | None = None) -> int:
        key = f"{self.architecture}.{name}"
        value: int = self.any(key, int, default)
        if not 1 <= value < 2**31:
            raise self.error(key, value, "1..2147483647")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        key = f"{self.architecture}.{name}"
        value: float = self.any(key, float, default)
        if not (math.isfinite(value) and value > 0):
            raise self.error(key, value, "a positive number")
        return value

    def factor(self, name: str, none: float = 1.0) -> float:
        """A factor, of which 0 stands for ``none``."""
        if self.metadata.get(f"{self.architecture}.{name}", 0.0) == 0.0:
            return none
        return self.positive(name)

    def tensor(self, tensors: Mapping[str, TensorInfo], name: str) -> TensorInfo:
        if name not in tensors:
            raise ValueError(
                f"{self.source}: tensor {name!r} is missing; the file is not a whole "
                f"{self.architecture} model"
            )
        return tensors[name]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
