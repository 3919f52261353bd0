"""The kinds of models that a checkpoint may hold, each described by a module of its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from onnx_iron.graph.trace import Trace
from onnx_iron.models import families
from onnx_iron.models.decoder import Shape
from onnx_iron.models.fields import Fields
from onnx_iron.models.weights import Weights

# The most rows of a model whose states have room for any: what a per-call value counts to.
ENDLESS = (1 << 31) - 1


class Traced(Protocol):
    """A graph that knows which versions of it an export holds."""

    def traces(self) -> dict[str, Trace]: ...


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        model_type: as configurations name it.
        architectures: the classes of transformers whose checkpoints it reads.
        read: a configuration's entries to what ``build`` needs.
        build: the graph of a configuration and its weights.
        generates: the model continues texts; otherwise it encodes.
        endless: its states have room for any number of rows, so that an export chooses no context.
        whole: a call has as many positions as the export's context, never fewer.
        prefix: what checkpoints of a class with a head have before the names of the tensors.
        unused: what names of tensors, without the prefix, begin with that the graph has no use for.
    """

    model_type: str
    architectures: tuple[str, ...]
    read: Callable[[Fields], Any]
    build: Callable[[Any, Weights, Shape], Traced]
    generates: bool = True
    endless: bool = False
    whole: bool = False
    prefix: str = ""
    unused: tuple[str, ...] = ()


@cache
def known_families() -> Mapping[str, Family]:
    """The families by model type: those of the modules in ``families``."""
    found = {}
    for module in pkgutil.iter_modules(families.__path__, f"{families.__name__}."):
        family: Family = importlib.import_module(module.name).FAMILY
        found[family.model_type] = family
    return found


def family_of(values: Mapping[str, Any], source: str) -> Family:
    """The family of a configuration.

    Raises:
        ValueError: there is none for its ``model_type``, or for its architecture.
    """
    kind = values.get("model_type")
    family = known_families().get(kind) if isinstance(kind, str) else None
    if family is None:
        raise ValueError(
            f"{source}: 'model_type' is {repr(kind)[:80]}, expected one of "
            f"{', '.join(sorted(known_families()))}; models of another type can't be built yet"
        )
    architectures = values.get("architectures") or []
    if isinstance(architectures, list):
        for name in architectures:
            if name not in family.architectures:
                raise ValueError(
                    f"{source}: 'architectures' names {repr(name)[:80]}, expected "
                    f"{' or '.join(family.architectures)}; a model of type {kind} with another "
                    "head can't be built yet"
                )
    return family
