"""Calls of a model that another exporter made: its inputs filled in, its caches handed on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from onnx_iron.dtypes import BFLOAT16

# By onnxruntime's name of a type: numpy's, and ONNX's number.
TYPES: dict[str, tuple[Any, int]] = {
    "tensor(float)": (np.float32, 1),
    "tensor(int32)": (np.int32, 6),
    "tensor(int64)": (np.int64, 7),
    "tensor(bool)": (np.bool_, 9),
    "tensor(bfloat16)": (BFLOAT16, 16),
}


class Driver:
    """A session, driven as a language model where it has caches, else called with its inputs.

    Args:
        session: of any provider.
        sizes: what stands for open dimensions, by name; else a batch is 1, what is past is what is
            cached so far, and everything else is the call's number of rows.

    Raises:
        TypeError: an input of a type that isn't filled in.
    """

    def __init__(
        self, session: onnxruntime.InferenceSession, sizes: Mapping[str, int] | None = None
    ) -> None:
        self._session = session
        self._sizes = dict(sizes or {})
        self._inputs = session.get_inputs()
        self._outputs = [output.name for output in session.get_outputs()]
        for port in self._inputs:
            if port.type not in TYPES:
                raise TypeError(f"input {port.name!r} is {port.type}, expected one of {[*TYPES]}")
        self._caches = self._pairs()
        self._random = np.random.default_rng(0)
        self.reset()

    @property
    def has_caches(self) -> bool:
        """Whether there are inputs that the outputs of the call before are."""
        return bool(self._caches)

    def reset(self) -> None:
        """Forget what is cached."""
        self._past = 0
        self._held: dict[str, onnxruntime.OrtValue] = {}

    def __call__(self, rows: int) -> list[onnxruntime.OrtValue]:
        """One call with so many new rows; returns all outputs."""
        feeds = {p.name: self._held.get(p.name) or self._filled(p, rows) for p in self._inputs}
        outputs = self._session.run_with_ort_values(self._outputs, feeds)
        by_name = dict(zip(self._outputs, outputs, strict=True))
        for taken, made in self._caches.items():
            self._held[taken] = by_name[made]
        if self._caches:
            self._past += rows
        return list(outputs)

    def _pairs(self) -> dict[str, str]:
        """By the name of an input that is a cache the output that it is next time."""
        outputs = {_plain(name): name for name in self._outputs if "present" in name}
        taken = [port.name for port in self._inputs if "past" in port.name]
        return {name: outputs[_plain(name)] for name in taken if _plain(name) in outputs}

    def _dim(self, dim: int | str | None, rows: int, port: Any) -> int:
        if isinstance(dim, int):
            return dim
        name = str(dim)
        if name in self._sizes:
            return self._sizes[name]
        if "batch" in name:
            return 1
        if "total" in name or "+" in name or port.name == "attention_mask":
            return self._past + rows
        return self._past if "past" in name else rows

    def _filled(self, port: Any, rows: int) -> onnxruntime.OrtValue:
        dtype, number = TYPES[port.type]
        shape = [self._dim(dim, rows, port) for dim in port.shape]
        if port.name == "position_ids":
            array = np.broadcast_to(np.arange(self._past, self._past + rows), shape).astype(dtype)
        elif "mask" in port.name:
            array = np.ones(shape, dtype)
        elif np.dtype(dtype).kind in "ib":
            array = np.zeros(shape, dtype)
        else:
            array = self._random.standard_normal(shape, np.float32).astype(dtype)
        array = np.ascontiguousarray(array)
        if dtype is BFLOAT16:
            bits = array.view(np.uint16)
            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _plain(name: str) -> str:
    """What the names of a cache's input and output have in common."""
    return re.sub(r"past_key_values?|present_key_values?|past|present", "", name)
