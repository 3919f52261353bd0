"""The model that a configuration describes, without a checkpoint: all weights are zeros."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from onnx_iron.dtypes import BFLOAT16
from onnx_iron.export import export
from onnx_iron.graph import Weight
from onnx_iron.models.decoder import Shape
from onnx_iron.models.family import family_of
from onnx_iron.models.fields import Fields
from onnx_iron.models.json_file import read_object
from onnx_iron.models.weights import Weights
from onnx_iron.tools.options import sizes

CONFIG = "config.json"


class _Zeros(Weights):
    """Weights of whatever names and shapes a graph asks for."""

    def __init__(self, source: str) -> None:
        super().__init__(self._none, BFLOAT16, source)

    def __call__(self, name: str, *shape: int) -> Weight:
        return Weight(shape, self.dtype, lambda: np.zeros(shape, self.dtype))

    def at(self, part: str) -> Weights:
        return self

    @staticmethod
    def _none(name: str) -> Weight:
        raise AssertionError(name)


def config_of(path: Path) -> Path | None:
    """The config.json that a path is or, in a folder without ONNX files, has."""
    if path.is_dir() and not any(path.glob("*.onnx")):
        path = path / CONFIG
    return path if path.suffix == ".json" and path.is_file() else None


def export_config(config: Path, folder: Path, options: argparse.Namespace) -> None:
    """Write the models of a Hugging Face configuration in bfloat16, as an export of its checkpoint
    would be but for the weights, which are as large.

    Args:
        options: ``context`` and ``chunk``, or None for what is usual.

    Raises:
        ValueError: it is of no model that can be built, or not for such a context and chunk.
        OSError: the files can't be written.
    """
    values = read_object(config)
    family = family_of(values, str(config))
    fields = Fields(values, str(config), family.model_type)
    fields.idle("model_type", "architectures")
    read = family.read(fields)
    wanted = sizes(options, read.context_length, family)
    shape = Shape(wanted.context, wanted.chunk)
    graph = family.build(read, _Zeros(str(config)), shape)
    export(graph.traces(), folder, state_dtype=None)
