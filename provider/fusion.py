"""Rewrites of a lowered subgraph that make it cheaper and leave every bit as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onnx_iron.operators.copy import Copy
from onnx_iron.provider.lowering import Lowering, View

Pass: TypeAlias = Callable[[Lowering], None]


def drop_copies(lowering: Lowering) -> None:
    """A copy is the value itself: who writes over the original waits for the copy's readers."""
    kept = []
    for step in lowering.steps:
        if isinstance(step.op, Copy) and step.inputs[0] is not None:
            lowering.views[step.outputs[0]] = View(step.inputs[0], 0)
        else:
            kept.append(step)
    lowering.steps = kept


PASSES: tuple[Pass, ...] = (drop_copies,)


def fuse(lowering: Lowering) -> None:
    """Run every pass."""
    for rewrite in PASSES:
        rewrite(lowering)
