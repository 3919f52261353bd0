"""A plan made before the first call: for sizes that are invented, and right for most others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from onnx_iron.dtypes import Shape
from onnx_iron.provider.graph import GraphDescription
from onnx_iron.provider.lowering import Refused
from onnx_iron.provider.subgraph import CompileError, Subgraph, lower_subgraph
from onnx_iron.provider.symbols import Symbol

# Sizes that are neither 0 nor 1 nor each other's.
_FIRST = 5
_STEP = 2
# How many sizes may turn out to follow from others, as all rows do from earlier and new ones.
_ATTEMPTS = 4

_log = logging.getLogger("onnx_iron")


class Sizes:
    """Invented sizes for the dimensions that a graph's inputs leave open, one for each name."""

    def __init__(self, graph: GraphDescription, shapes: Sequence[Shape]) -> None:
        self._open: dict[tuple[int, int], str] = {}
        self._sizes: dict[str, int] = {}
        self._shapes = shapes
        for number, (name, shape) in enumerate(zip(graph.inputs, shapes, strict=True)):
            dims = graph.values[name].dims or ()
            for axis, dim in enumerate(shape):
                if dim < 0:
                    named = str(dims[axis]) if axis < len(dims) else ""
                    key = named or f"{number} {axis}"
                    self._open[number, axis] = key
                    self._sizes.setdefault(key, _FIRST + _STEP * len(self._sizes))

    def shapes(self) -> list[Shape]:
        """The inputs' shapes, whole."""
        return [
            tuple(
                self._sizes[self._open[number, axis]] if dim < 0 else dim
                for axis, dim in enumerate(shape)
            )
            for number, shape in enumerate(self._shapes)
        ]

    def change(self, have: object, wanted: object) -> bool:
        """Take ``wanted`` for an open dimension, where ``have`` is one."""
        origin = have.origin() if isinstance(have, Symbol) else None
        key = None if origin is None else self._open.get(origin)
        if key is None or not isinstance(wanted, int | Symbol):
            return False
        size = wanted.value() if isinstance(wanted, Symbol) else wanted
        changed = self._sizes[key] != size
        self._sizes[key] = size
        return changed


def foresee(graph: GraphDescription, shapes: Sequence[Shape]) -> Subgraph | None:
    """Plan a claimed group of nodes for symbols, before any call.

    Args:
        graph: the nodes, and what is known of their values.
        shapes: of the graph's inputs, -1 for what the model leaves open.

    Returns:
        The plan; None where no sizes were found that fit one another. The first call plans then.
    """
    sizes = Sizes(graph, shapes)
    for _ in range(_ATTEMPTS):
        try:
            return lower_subgraph(graph, sizes.shapes(), general=True)
        except CompileError as error:
            _log.debug("%s is not planned for %s: %s", graph.name, sizes.shapes(), error)
            refusal = error.__cause__
            if not isinstance(refusal, Refused):
                return None
            if not any(sizes.change(d.have, d.wanted) for d in refusal.differences):
                return None
    return None
