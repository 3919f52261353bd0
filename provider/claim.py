"""Which nodes of a graph the provider takes, and in which groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_iron.provider.graph import Graph, Node
from onnx_iron.provider.kernel_check import check_step
from onnx_iron.provider.lowering import Lowering, Refused, start
from onnx_iron.provider.rules import lower
from onnx_iron.provider.specs import Spec

# Stands for a dimension that only a call knows, while a node is tried.
STAND_IN = 8


@dataclass(frozen=True)
class Decision:
    """What is done with a node: taken, or left with a reason."""

    node: Node
    taken: bool
    reason: str = ""


def decide(graph: Graph) -> list[Decision]:
    """Try every node: its rule, and the kernels that the rule calls for.

    A node of a graph inside another node (the branches of an If) is left: its outer values are
    not known here.
    """
    if graph.nested:
        return [Decision(node, False, "it is inside another node's graph") for node in graph.nodes]
    known = start(graph)
    known.specs = declared_specs(graph)
    return [try_node(node, known) for node in graph.nodes]


def declared_specs(graph: Graph) -> dict[str, Spec]:
    """The types that onnxruntime knows, a stand-in for each open dimension."""
    return {
        value.name: Spec(
            tuple(dim if isinstance(dim, int) else STAND_IN for dim in value.dims), value.dtype
        )
        for value in graph.values.values()
        if value.dtype is not None and value.dims is not None
    }


def try_node(node: Node, known: Lowering) -> Decision:
    """Lower a node on its own; what that finds out about its outputs is added to ``known``."""
    if node.provider:
        return Decision(node, False, f"it already is {node.provider}'s")
    if node.problem:
        return Decision(node, False, node.problem)
    specs = {name: known.specs[name] for name in node.inputs if name in known.specs}
    trial = Lowering(specs=specs, integers=known.integers)
    try:
        lower(node, trial)
        for step in trial.steps:
            check_step(step, trial)
    except Refused as refusal:
        return Decision(node, False, str(refusal))
    for name in node.outputs:
        if name:
            known.specs[name] = trial.specs[name]
    return Decision(node, True)


def group(nodes: Sequence[Node], taken: set[int]) -> list[list[int]]:
    """Split the taken nodes into groups that each can become one node without making a cycle.

    A node's level counts the switches from taken to left nodes on the way to it. All taken nodes
    of a level make one group: a path that leaves a group passes a switch, so it never returns.

    Args:
        nodes: the graph's nodes in a valid order.
        taken: the ``index`` of those that are taken.

    Returns:
        For each group the nodes' ``index``, in order.
    """
    producer = {name: node.index for node in nodes for name in node.outputs if name}
    levels: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for node in nodes:
        here = node.index in taken
        level = 0
        for name in node.reads:
            before = producer.get(name)
            if before is not None:
                level = max(level, levels[before] + (before in taken and not here))
        levels[node.index] = level
        if here:
            groups.setdefault(level, []).append(node.index)
    return [groups[level] for level in sorted(groups)]
