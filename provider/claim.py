"""Which nodes of a graph the provider takes, and in which groups."""

from __future__ import annotations

import logging
import math
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass

from onnx_iron.dtypes import BFLOAT16, Array, Spec
from onnx_iron.operators.base import DOMAIN
from onnx_iron.provider.graph import GraphDescription, Node, ValueInfo
from onnx_iron.provider.kernel_check import check_step
from onnx_iron.provider.lowering import Lowering, Refused, Slower, start
from onnx_iron.provider.rules import lower

# Stands for a dimension that only a call knows, while a node is tried.
STAND_IN = 8

_log = logging.getLogger("onnx_iron")


@dataclass(frozen=True)
class Decision:
    """What is done with a node: taken, or left with a reason.

    Attributes:
        slower: it could be run, and onnxruntime's own kernel is faster.
    """

    node: Node
    taken: bool
    reason: str = ""
    slower: bool = False


class Levels:
    """How many switches from taken to left nodes are on the way to each node.

    All taken nodes of a level may become one node: a path that leaves them passes a switch, so it
    never returns.
    """

    def __init__(self) -> None:
        self._outputs: dict[str, tuple[int, bool]] = {}

    def of(self, node: Node, taken: bool) -> int:
        """The level of a node whose inputs' nodes were added."""
        before = [self._outputs[name] for name in node.reads if name in self._outputs]
        return max((level + (here and not taken) for level, here in before), default=0)

    def add(self, node: Node, taken: bool) -> int:
        """Keep the level of a node for those that read from it, and give it."""
        level = self.of(node, taken)
        self._outputs.update(dict.fromkeys(filter(None, node.outputs), (level, taken)))
        return level


class Known:
    """What is known about a graph's values while its nodes are tried, one after another.

    A group is compiled with no more than the shapes of its inputs and the constants. What is in a
    value that one group computes is known to the nodes of that group alone.
    """

    def __init__(self, graph: GraphDescription) -> None:
        self._graph = graph
        self._constants = start(graph).integers
        self._contents: dict[int, dict[str, Array]] = {}
        self._specs = declared_specs(graph)
        self._guessed = {name for name in graph.values if not self._is_static(name)}

    def _is_static(self, name: str) -> bool:
        """Whether the model itself says the value's shape."""
        value = self._graph.values.get(name)
        return (
            value is not None
            and value.dims is not None
            and all(isinstance(dim, int) for dim in value.dims)
        )

    def try_node(self, node: Node, level: int) -> None:
        """Lower a node as one of its level's group, and keep what that finds out.

        Raises:
            Refused: it can't be run there, and why.
        """
        contents = self._contents.setdefault(level, {})
        specs = {name: self._specs[name] for name in node.inputs if name in self._specs}
        made: dict[str, Array] = {}
        integers = ChainMap(made, contents, self._constants)
        while True:
            made.clear()
            trial = Lowering(
                specs=dict(specs),
                integers=integers,
                guessed=self._guessed,
                declared=self._graph.values,
                claiming=True,
            )
            try:
                lower(node, trial)
                break
            except Refused as refusal:
                if not self._guess_again(node, specs, refusal):
                    raise
        for step in trial.steps:
            check_step(step, trial)
        guess = not self._guessed.isdisjoint(node.inputs)
        for name in filter(None, node.outputs):
            self._specs[name] = trial.specs[name]
            if name in made:
                contents[name] = made[name]
            if guess and (name in made or not self._is_static(name)):
                self._guessed.add(name)
            elif not guess:
                self._guessed.discard(name)

    def _guess_again(self, node: Node, specs: dict[str, Spec], refusal: Refused) -> bool:
        """Take another size for a dimension that the model leaves open, where that may help."""
        for index, axis, have, wanted in refusal.differences:
            for name in node.inputs if index is None else node.inputs[index : index + 1]:
                value = self._graph.values.get(name)
                if name not in specs or value is None or value.dims is None:
                    continue
                shape = specs[name].shape
                if len(value.dims) != len(shape) or not -len(shape) <= axis < 0:
                    continue
                # Only a stand-in gives way, so that there is an end to it.
                is_stand_in = not isinstance(value.dims[axis], int) and have == STAND_IN
                if is_stand_in and shape[axis] == have != wanted:
                    changed = list(shape)
                    changed[axis] = wanted
                    specs[name] = Spec(tuple(changed), specs[name].dtype)
                    return True
        return False


def decide(graph: GraphDescription) -> list[Decision]:
    """Try every node: its rule, and the kernels that the rule calls for.

    A node of a graph inside another node (the branches of an If) is left: its outer values are
    not known here.
    """
    if graph.nested:
        return [Decision(node, False, "it is inside another node's graph") for node in graph.nodes]
    known, levels = Known(graph), Levels()
    decisions = []
    for node in graph.nodes:
        decision = _decide(node, known, levels.of(node, taken=True))
        levels.add(node, taken=decision.taken)
        decisions.append(decision)
    if any(d.slower or d.node.op_type == "DequantizeLinear" for d in decisions):
        decisions = _without_small_groups(graph, decisions)
    return decisions


def _decide(node: Node, known: Known, level: int) -> Decision:
    """Try a node as one of its level's group."""
    if node.provider:
        return Decision(node, False, f"it already is {node.provider}'s")
    if node.problem:
        return Decision(node, False, node.problem)
    try:
        known.try_node(node, level)
    except Refused as refusal:
        return Decision(node, False, str(refusal) or "it is refused", isinstance(refusal, Slower))
    except Exception as error:  # whatever a model holds, its other nodes can be run
        _log.debug("%s is left: it could not be examined", node, exc_info=True)
        why = f"it could not be examined: {type(error).__name__}: {error}"
        return Decision(node, False, why)
    return Decision(node, True)


# Elements of a constant from which it is a weight that something is multiplied by, and how many of
# them are worth a switch: a layer of attention has four.
_WEIGHT = 1 << 10
_WEIGHTS = 4


def _without_small_groups(graph: GraphDescription, decisions: Sequence[Decision]) -> list[Decision]:
    """Of a graph whose larger work is onnxruntime's, leave the groups that have few weights.

    What is between two convolutions costs less than a switch to it and back, and onnxruntime
    fuses it with them; between a DequantizeLinear and a QuantizeLinear, into products of integers.
    """
    taken = {decision.node.index for decision in decisions if decision.taken}
    by_index = {decision.node.index: decision.node for decision in decisions}
    left: set[int] = set()
    for indices in group([decision.node for decision in decisions], taken):
        nodes = [by_index[index] for index in indices]
        only_here = any(_is_only_here(graph, node) for node in nodes)
        if not only_here and sum(_weights(graph, node) for node in nodes) < _WEIGHTS:
            left.update(indices)
    why = "onnxruntime runs the larger nodes around it, and a switch from it costs more"
    return [
        Decision(d.node, False, why, slower=True) if d.node.index in left else d for d in decisions
    ]


def _is_only_here(graph: GraphDescription, node: Node) -> bool:
    """Whether onnxruntime has no kernel for a node."""
    return node.domain == DOMAIN or any(
        graph.values[name].dtype == BFLOAT16
        for name in (*node.inputs, *node.outputs)
        if name in graph.values
    )


def _weights(graph: GraphDescription, node: Node) -> int:
    values = [graph.values[name] for name in node.inputs if name in graph.values]
    return sum(value.constant and _elements(value) >= _WEIGHT for value in values)


def _elements(value: ValueInfo) -> int:
    dims = value.dims or ()
    return math.prod(dim for dim in dims if isinstance(dim, int)) if len(dims) > 1 else 0


def declared_specs(graph: GraphDescription) -> dict[str, Spec]:
    """The types that onnxruntime knows, a stand-in for each open dimension."""
    return {
        value.name: Spec(
            tuple(dim if isinstance(dim, int) else STAND_IN for dim in value.dims), value.dtype
        )
        for value in graph.values.values()
        if value.dtype is not None and value.dims is not None
    }


def group(nodes: Sequence[Node], taken: set[int]) -> list[list[int]]:
    """Split the taken nodes into groups that each can become one node without making a cycle.

    Args:
        nodes: the graph's nodes in a valid order.
        taken: the ``index`` of those that are taken.

    Returns:
        For each group the nodes' ``index``, in order.
    """
    levels = Levels()
    groups: dict[int, list[int]] = {}
    for node in nodes:
        level = levels.add(node, node.index in taken)
        if node.index in taken:
            groups.setdefault(level, []).append(node.index)
    return [groups[level] for level in sorted(groups)]
