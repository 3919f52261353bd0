"""The weights that a graph asks a checkpoint for, by name and shape, and parts made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph import Weight


class Weights:
    """Weights under a prefix of their names.

    Args:
        load: a tensor by the checkpoint's whole name, in the dtype that the graph computes in.
        dtype: that dtype, float32 or bfloat16.
        source: the checkpoint, for errors.
        spelled: the checkpoint's name for a tensor that a graph asks for by transformers' name.
        load_wide: as ``load``, in float32; ``load`` itself where it is not given.
    """

    def __init__(
        self,
        load: Callable[[str], Weight],
        dtype: Any,
        source: str,
        spelled: Callable[[str], str] = str,
        load_wide: Callable[[str], Weight] | None = None,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.source = source
        self._load = load
        self._load_wide = load_wide or load
        self._spelled = spelled
        self._prefix = ""
        self._asked: dict[str, tuple[int, ...]] = {}

    def __call__(self, name: str, *shape: int) -> Weight:
        """A tensor, held to the shape that the configuration gives it.

        Raises:
            ValueError: it is missing, or has another shape.
        """
        return self._shaped(self._load, name, shape)

    def wide(self, name: str, *shape: int) -> Weight:
        """A tensor in float32 whatever the graph computes in; otherwise as a call.

        Raises:
            ValueError: it is missing, or has another shape.
        """
        return self._shaped(self._load_wide, name, shape)

    def _shaped(self, load: Callable[[str], Weight], name: str, shape: tuple[int, ...]) -> Weight:
        whole = self._spelled(self._prefix + name)
        self._asked[whole] = shape
        weight = load(whole)
        if weight.shape == shape:
            return weight
        # GGUF drops dimensions of one.
        if weight.shape == tuple(n for n in shape if n > 1):
            return derived(weight, shape, lambda array: array.reshape(shape))
        raise ValueError(
            f"{self.source}: the shape of tensor {whole!r} is {weight.shape}, expected {shape} by "
            "the configuration"
        )

    @property
    def asked(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors asked for so far, by the checkpoint's names."""
        return self._asked

    def at(self, part: str) -> Weights:
        """The weights below a name."""
        below = Weights(self._load, self.dtype, self.source, self._spelled, self._load_wide)
        below._prefix = f"{self._prefix}{part}."
        below._asked = self._asked
        return below

    def check_all_asked(self, names: Iterable[str], idle: Callable[[str], bool]) -> None:
        """Refuse a tensor that the graph has no place for.

        Args:
            names: the checkpoint's.
            idle: tells those that hold nothing of the model's function.

        Raises:
            ValueError: there is one.
        """
        for name in names:
            if name not in self._asked and not idle(name):
                raise ValueError(
                    f"{self.source}: tensor {name!r} has no place in the model that the "
                    "configuration describes; the checkpoint is of a variant that isn't implemented"
                )


def rows(weight: Weight, begin: int, end: int) -> Weight:
    """The rows ``begin..end`` of a weight, of (end - begin, ...)."""
    shape = (end - begin, *weight.shape[1:])
    return derived(weight, shape, lambda array: array[begin:end])


def derived(weight: Weight, shape: tuple[int, ...], make: Callable[[Array], Array]) -> Weight:
    """A weight that is made of another one when it is loaded, in the other's dtype."""

    def load() -> Array:
        return np.ascontiguousarray(make(weight.load())).astype(weight.dtype, copy=False)

    return Weight(shape, weight.dtype, load)
