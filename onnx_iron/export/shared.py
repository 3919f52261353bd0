"""What the models of a folder share by name: weights and states."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from onnx_iron.export import weights as external
from onnx_iron.graph.parts import Weight
from onnx_iron.graph.trace import Trace

_APART = (
    "versions of a graph share what has one name; hold different graphs in one, whose paths tell "
    "them apart (self.encoder, self.decoder), or export them to folders of their own"
)


def shared_weights(models: Mapping[str, Trace]) -> dict[str, Weight]:
    """The weights of all versions in the order of their first use.

    Raises:
        ValueError: two versions have different weights or states under one name.
    """
    weights: dict[str, Weight] = {}
    states: dict[str, Any] = {}
    first: dict[str, str] = {}
    for role, trace in models.items():
        for name, weight in trace.weights.items():
            if not external.same(weights.setdefault(name, weight), weight):
                raise _clash(first[name], role, "weights", name)
            first.setdefault(name, role)
        for name, state in trace.states.items():
            spec = (state.shape, state.dtype)
            if states.setdefault(name, spec) != spec:
                raise _clash(first[name], role, "states", name)
            first.setdefault(name, role)
    for (role, one), (other, two) in combinations(models.items(), 2):
        # Without a weight in common nothing says that they are versions of one graph.
        held = [
            {name for name in t.weights if not name.startswith("constant.")} for t in (one, two)
        ]
        if all(held) and not held[0] & held[1]:
            for name in sorted(one.states.keys() & two.states.keys()):
                if one.states[name] is not two.states[name] and not one.states[name].scratch:
                    raise _clash(role, other, "states", name)
    return weights


def _clash(one: str, other: str, what: str, name: str) -> ValueError:
    return ValueError(
        f"export(): {one.removesuffix('.onnx')} and {other.removesuffix('.onnx')} have different "
        f"{what} named {name}; {_APART}"
    )
