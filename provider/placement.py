"""Where each node of a session's model runs, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import onnxruntime

from onnx_iron.provider.devices import DEVICES
from onnx_iron.provider.records import Record, recall
from onnx_iron.provider.registration import EP_NAME


class HasPlacement(Protocol):
    """A session of several models, as ``onnx_iron.Session``."""

    def placement(self) -> dict[str, Placement]: ...


RECORDING = "session.record_ep_graph_assignment_info"


@dataclass(frozen=True)
class Row:
    """A node: which provider runs it, on which device, and why not ours or not that asked for."""

    name: str
    domain: str
    op_type: str
    provider: str
    device: str
    reason: str


@dataclass(frozen=True)
class Placement:
    """The nodes of a session's model.

    Attributes:
        rows: the nodes as onnxruntime runs them.
        replaced: nodes that the provider left and that are not there any more: onnxruntime put
            their function's body, or something else, in their place.
        fallbacks: calls of a subgraph that the NPU failed and the CPU ran, so far.
        fallback_reason: why the last of them did.
    """

    rows: tuple[Row, ...]
    replaced: tuple[Row, ...] = ()
    fallbacks: int = 0
    fallback_reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether IronExecutionProvider runs every node."""
        return all(row.provider == EP_NAME for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Counts by provider and device, and all rows, for a machine to read."""
        return {
            "counts": {" ".join(key): count for key, count in self._counts().items()},
            "nodes": [asdict(row) for row in self.rows],
            "replaced": [asdict(row) for row in self.replaced],
            "fallbacks": {"count": self.fallbacks, "reason": self.fallback_reason},
        }

    def _counts(self) -> Counter[tuple[str, str]]:
        return Counter((row.provider, row.device) for row in self.rows)

    def __str__(self) -> str:
        lines = [
            f"{count:6} nodes on {provider} ({device})"
            for (provider, device), count in self._counts().most_common()
        ]
        here = [row for row in self.rows if row.provider == EP_NAME]
        left = [row for row in self.rows if row.provider != EP_NAME]
        kinds = (("not on the NPU", here), ("left", left), ("replaced", self.replaced))
        for what, rows in kinds:
            names: dict[tuple[str, str], list[str]] = {}
            for row in rows:
                if row.reason:
                    op = f"{row.domain}.{row.op_type}" if row.domain else row.op_type
                    names.setdefault((op, row.reason), []).append(row.name)
            for (op, reason), found in names.items():
                some = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
                lines.append(f"{len(found):6} {op} {what}: {reason} ({some})")
        if self.fallbacks:
            lines.append(f"{self.fallbacks:6} calls fell back to the CPU: {self.fallback_reason}")
        return "\n".join(lines)


def placement(session: onnxruntime.InferenceSession | HasPlacement) -> Placement:
    """Where each node of a session runs; of an ``onnx_iron.Session``, the nodes of all its models.

    With the session option ``session.record_ep_graph_assignment_info`` set to ``"1"``
    (``onnx_iron.Session`` sets it) this is onnxruntime's own record. Without it, it is what the
    provider decided about the models with the same graph name, inputs, outputs and options, among
    the last 64 that this process opened, where that is one and the same; nodes that other
    providers fused are then listed apart.

    Raises:
        LookupError: nothing is known about the session, or models that look the same to a session
            were placed differently.
    """
    if not isinstance(session, onnxruntime.InferenceSession):
        reports = list(session.placement().values())
        return Placement(
            tuple(row for report in reports for row in report.rows),
            tuple(row for report in reports for row in report.replaced),
            sum(report.fallbacks for report in reports),
            next((r.fallback_reason for r in reports if r.fallback_reason), ""),
        )
    meta = session.get_modelmeta()
    key = (
        _text(meta, "graph_name"),
        tuple(item.name for item in session.get_inputs()),
        tuple(item.name for item in session.get_outputs()),
        frozenset(session.get_provider_options().get(EP_NAME, {}).items()),
    )
    record = recall(key) if EP_NAME in session.get_providers() else None
    try:
        assigned = session.get_provider_graph_assignment_info()
    except Exception as error:  # onnxruntime's exceptions have no common base
        if RECORDING not in str(error):
            raise
        assigned = None  # it was not recorded
    if assigned is not None:
        rows = _from_onnxruntime(assigned, record)
        return _report(rows, record)
    if record is not None and record.ambiguous:
        raise LookupError(
            "models with the same graph name, inputs, outputs and options were placed differently, "
            f"and which one this is can't be told: open it with the session option {RECORDING!r} "
            "set to '1'"
        )
    if record is None:
        raise LookupError(
            "nothing is known about where this session's nodes run: open it with providers="
            f"[{EP_NAME!r}, ...] in this process, or with the session option {RECORDING!r} "
            "set to '1'"
        )
    rows = _from_record(record)
    return _report(rows, record)


def _report(rows: Sequence[Row], record: Record | None) -> Placement:
    count, reason = 0, ""
    if record is not None:
        counted = DEVICES[record.device].fallbacks(record.provider)
        count, reason = counted.count, counted.reason
    return Placement(tuple(rows), tuple(_replaced(rows, record)), count, reason)


def _place(record: Record | None, name: str) -> tuple[str, str]:
    """The device that runs a node of ours, and why it is not the one that was asked for."""
    if record is None:
        return "cpu", ""
    return record.places.get(name, (record.device, ""))


def _from_onnxruntime(assigned: Sequence[Any], record: Record | None) -> list[Row]:
    left = record.left if record else {}
    rows = []
    for subgraph in assigned:
        ours = subgraph.ep_name == EP_NAME
        for node in subgraph.get_nodes():
            name, domain, op_type = (_text(node, what) for what in ("name", "domain", "op_type"))
            if ours:
                where, reason = _place(record, name)
            else:
                decision = left.get((name, op_type))
                where = _device(subgraph.ep_name)
                reason = "" if decision is None else decision.reason
            rows.append(Row(name, domain, op_type, subgraph.ep_name, where, reason))
    return rows


def _text(node: Any, what: str) -> str:
    """A node's name, domain or operator; where it is no text, pybind11 raises."""
    try:
        return str(getattr(node, what))
    except UnicodeDecodeError:
        return "(no UTF-8)"


def _from_record(record: Record) -> list[Row]:
    rows = []
    for decision in record.decisions:
        node = decision.node
        provider = EP_NAME if decision.taken else node.provider or "another provider"
        device, reason = _device(provider), decision.reason
        if decision.taken:
            device, reason = _place(record, node.name)
        rows.append(Row(node.name, node.domain, node.op_type, provider, device, reason))
    return rows


def _replaced(rows: Sequence[Row], record: Record | None) -> list[Row]:
    there = {(row.name, row.op_type) for row in rows}
    return [
        Row(name, decision.node.domain, op_type, "", "", decision.reason)
        for (name, op_type), decision in (record.left if record else {}).items()
        if (name, op_type) not in there
    ]


def _device(provider: str) -> str:
    return "cpu" if provider.startswith("CPU") else "not known"
