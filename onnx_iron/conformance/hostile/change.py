"""A change: what makes a draft hostile, chosen by a generator of random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx

from onnx_iron.conformance.hostile.originals import Draft

Random = np.random.Generator
# Changes the draft and says how in a few words; None where there is nothing to change.
Change: TypeAlias = Callable[[Random, Draft], str | None]
Item = TypeVar("Item")

CHANGES: dict[str, Change] = {}

# What an integer may be turned into: around nothing, and around the ends of 32 and 64 bits.
INTEGERS = (
    *(0, 1, -1, 2, 3, -2, 7, 63, 1 << 15),
    *((1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 40),
    *(1 << 61, 1 << 62, (1 << 63) - 1, -(1 << 63)),
)
REALS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-12, 3e38, float("inf"), -float("inf"), float("nan"))
TEXTS = ("", "x", "\0", "a\0b", "é😀", "../..", "%s%n", "tanh", "silu", "9" * 40, "n" * 70_000)


def change(function: Change) -> Change:
    """Enter a change under its function's name."""
    CHANGES[function.__name__] = function
    return function


def one(rng: Random, items: Sequence[Item]) -> Item:
    """One of them."""
    return items[int(rng.integers(len(items)))]


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside its nodes."""
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]


def some_nodes(rng: Random, draft: Draft) -> Any:
    """A repeated field of nodes, with some in it: of a graph or of a function; None without any.

    Every second draw is of the main graph, where most of what is read is.
    """
    model = draft.model
    if model.graph.node and rng.random() < 0.5:
        return model.graph.node
    lists = [(graph.node, False) for graph in graphs(model)]
    lists = [found for found in (*lists, *((f.node, True) for f in model.functions)) if found[0]]
    if not lists:
        return None
    nodes, of_function = one(rng, lists)
    # Our kernels have a function's meaning from its name, others from its nodes.
    draft.ambiguous |= of_function
    return nodes


def a_node(rng: Random, draft: Draft) -> onnx.NodeProto | None:
    """A node; None without any."""
    nodes = some_nodes(rng, draft)
    return None if nodes is None else one(rng, nodes)


def value_names(draft: Draft) -> list[str]:
    """The names of the main graph's values."""
    graph = draft.model.graph
    names = [value.name for value in (*graph.input, *graph.initializer)]
    return [*names, *(name for node in graph.node for name in node.output if name)]
