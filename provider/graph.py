"""A graph of onnxruntime's, as the native side describes it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import DTYPES, Array, DType


@dataclass(frozen=True)
class ValueInfo:
    """A tensor in the graph.

    ``dtype`` is None for one that no kernel knows; ``dims`` is None where the rank is unknown, and
    holds a name (perhaps empty) for a dimension that is; ``data`` are a small integer constant's
    elements.
    """

    name: str
    dtype: DType | None
    dtype_number: int
    dims: tuple[int | str, ...] | None
    constant: bool
    data: Array | None


@dataclass(frozen=True)
class Node:
    """A node; ``index`` is its position in the description. An omitted operand's name is empty.

    ``problem`` is why the description can't be relied on, if it can't.
    """

    index: int
    name: str
    domain: str
    op_type: str
    since_version: int
    provider: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    implicit_inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    problem: str = ""

    def __str__(self) -> str:
        op = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"{op} '{self.name}'"

    @property
    def reads(self) -> tuple[str, ...]:
        """Every value that must be there before the node runs."""
        return tuple(name for name in (*self.inputs, *self.implicit_inputs) if name)


@dataclass(frozen=True)
class GraphDescription:
    """Nodes in a valid order, the values they mention, and the names at the border."""

    name: str
    nested: bool
    nodes: tuple[Node, ...]
    values: Mapping[str, ValueInfo]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read_graph(description: Mapping[str, Any]) -> GraphDescription:
    """The graph in a description that came as JSON."""
    values = {item["name"]: _value(item) for item in description["values"]}
    nodes = [_node(index, item) for index, item in enumerate(description["nodes"])]
    return GraphDescription(
        name=description["name"],
        nested=description["nested"],
        nodes=tuple(in_order(nodes)),
        values=values,
        inputs=tuple(description["inputs"]),
        outputs=tuple(description["outputs"]),
    )


def _value(item: Mapping[str, Any]) -> ValueInfo:
    dtype = DTYPES.get(item["dtype"])
    dims = item["dims"]
    data = None
    if "data" in item:
        data = np.array(item["data"], dtype).reshape(dims)
    return ValueInfo(
        name=item["name"],
        dtype=dtype,
        dtype_number=item["dtype"],
        dims=None if dims is None else tuple(dims),
        constant=item.get("constant", False),
        data=data,
    )


def _node(index: int, item: Mapping[str, Any]) -> Node:
    return Node(
        index=index,
        name=item["name"],
        domain="" if item["domain"] == "ai.onnx" else item["domain"],
        op_type=item["op_type"],
        since_version=item["since_version"],
        provider=item["provider"],
        attributes=item["attributes"],
        inputs=tuple(item["inputs"]),
        implicit_inputs=tuple(item["implicit_inputs"]),
        outputs=tuple(item["outputs"]),
        problem=item["problem"],
    )


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """The nodes so that each comes after those it reads from; otherwise as they came.

    Raises:
        ValueError: the nodes form a cycle.
    """
    producer = {name: node for node in nodes for name in node.outputs if name}
    consumers: dict[int, list[Node]] = {}
    waits = {node.index: 0 for node in nodes}
    for node in nodes:
        for name in set(node.reads):
            if name in producer:
                consumers.setdefault(producer[name].index, []).append(node)
                waits[node.index] += 1
    by_index = {node.index: node for node in nodes}
    ready = [index for index, count in waits.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        node = by_index[heapq.heappop(ready)]
        order.append(node)
        for consumer in consumers.get(node.index, ()):
            waits[consumer.index] -= 1
            if waits[consumer.index] == 0:
                heapq.heappush(ready, consumer.index)
    if len(order) != len(nodes):
        raise ValueError("the graph's nodes form a cycle")
    return order
