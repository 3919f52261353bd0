"""What the planner decided about the latest models, for the placement report."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from onnx_iron.provider.claim import Decision
from onnx_iron.provider.graph import GraphDescription

# GraphDescription name, names of the inputs, names of the outputs, and the session's options.
Options: TypeAlias = "frozenset[tuple[str, str]]"
Key: TypeAlias = "tuple[str, tuple[str, ...], tuple[str, ...], Options]"

# A node's name, domain and operator, whether it was taken, and why not.
Placed: TypeAlias = "tuple[str, str, str, bool, str]"

KEPT = 64


@dataclass
class Record:
    """Decisions about one session's graph.

    Attributes:
        provider: the native provider's number; each session has its own.
        device: what runs the taken nodes, as far as ``places`` does not say it.
        decisions: the latest ones. onnxruntime asks several times while it takes a graph apart.
        left: the nodes that were ever left, by name and operator.
        places: by node name the device that runs a taken node, and why it is not the one that was
            asked for; empty where it is.
        inherited: earlier sessions' graphs with the same key differed already.
        earlier: how the nodes of the one before were placed.
    """

    provider: int
    device: str
    decisions: Sequence[Decision] = ()
    left: dict[tuple[str, str], Decision] = field(default_factory=dict)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    inherited: bool = False
    earlier: tuple[Placed, ...] = ()

    @property
    def ambiguous(self) -> bool:
        """Another session's graph, which has the same key, was placed differently."""
        return self.inherited or (bool(self.earlier) and self.earlier != self.placed())

    def placed(self) -> tuple[Placed, ...]:
        """The nodes and who runs each."""
        return tuple(
            (d.node.name, d.node.domain, d.node.op_type, d.taken, d.reason) for d in self.decisions
        )


_records: OrderedDict[Key, Record] = OrderedDict()
_lock = threading.Lock()


def remember(
    provider: int,
    device: str,
    graph: GraphDescription,
    decisions: Sequence[Decision],
    options: Mapping[str, str],
) -> None:
    """Keep the decisions about a graph, the latest 64 graphs."""
    key = (graph.name, graph.inputs, graph.outputs, frozenset(options.items()))
    with _lock:
        record = _records.get(key)
        if record is None or record.provider != provider:
            earlier = () if record is None else record.placed()
            differs = record is not None and record.ambiguous
            record = Record(provider, device, earlier=earlier, inherited=differs)
        _records[key] = record
        _records.move_to_end(key)
        record.decisions = decisions
        for decision in decisions:
            if not decision.taken and not decision.node.provider:
                record.left[decision.node.name, decision.node.op_type] = decision
        while len(_records) > KEPT:
            _records.popitem(last=False)


def remember_places(provider: int, places: Mapping[str, tuple[str, str]]) -> None:
    """Keep where a session's nodes run: for each its device, and a reason."""
    with _lock:
        for record in _records.values():
            if record.provider == provider:
                record.places.update(places)


def recall(key: Key) -> Record | None:
    """The latest decisions about a graph, for these options if there were any."""
    with _lock:
        if key in _records:
            return _records[key]
        latest = reversed(_records.items())
        return next((record for other, record in latest if other[:3] == key[:3]), None)
