"""A claimed group of nodes, lowered and scheduled for its inputs' shapes: what devices compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx_iron.dtypes import Shape, Spec
from onnx_iron.provider.fusion import fuse
from onnx_iron.provider.graph import Graph
from onnx_iron.provider.lowering import Lowering, Refused, Step, start
from onnx_iron.provider.rules import lower
from onnx_iron.provider.schedule import schedule


class CompileError(Exception):
    """A subgraph that was claimed and can't be compiled for the shapes of a call."""


@dataclass(frozen=True)
class Subgraph:
    """Steps in an order that leaves a state to be updated in place.

    Attributes:
        constant: which inputs never change.
        placed: the roots that live in an output's buffer, with the output's number.
        pairs: (input, output) numbers that may be one buffer.
    """

    lowering: Lowering
    steps: list[Step]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constant: tuple[bool, ...]
    placed: dict[str, int]
    pairs: list[tuple[int, int]]

    def copy(self) -> Subgraph:
        """One that a device may rewrite."""
        lowering = self.lowering
        steps = [
            replace(step, inputs=list(step.inputs), outputs=list(step.outputs))
            for step in self.steps
        ]
        return replace(
            self,
            lowering=Lowering(
                specs=dict(lowering.specs),
                integers=dict(lowering.integers),
                steps=steps,
                views=dict(lowering.views),
                literals=dict(lowering.literals),
            ),
            steps=steps,
            placed=dict(self.placed),
        )


def lower_subgraph(graph: Graph, shapes: Sequence[Shape]) -> Subgraph:
    """Lower and schedule a claimed group of nodes.

    Raises:
        CompileError: a node that these shapes do not fit, by name.
    """
    lowering, constant = start(graph), []
    for name, shape in zip(graph.inputs, shapes, strict=True):
        value = graph.values[name]
        if value.dtype is not None:
            lowering.specs[name] = Spec(tuple(shape), value.dtype)
        constant.append(value.constant)
    for node in graph.nodes:
        try:
            lower(node, lowering)
        except Refused as refusal:
            raise CompileError(f"{node}: {refusal}") from None
        except Exception as error:
            raise CompileError(f"{node}: {type(error).__name__}: {error}") from error
    fuse(lowering)
    plan = schedule(lowering, graph.inputs, constant, graph.outputs)
    return Subgraph(
        lowering=lowering,
        steps=plan.steps,
        inputs=graph.inputs,
        outputs=graph.outputs,
        constant=tuple(constant),
        placed=plan.placed,
        pairs=plan.pairs,
    )
