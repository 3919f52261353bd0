"""A claimed group of nodes, lowered and scheduled for its inputs' shapes: what devices compile."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx_iron.dtypes import Shape, Spec
from onnx_iron.provider.fusion import fuse
from onnx_iron.provider.graph import GraphDescription, ValueInfo
from onnx_iron.provider.lowering import KernelCall, Lowering, Refused, start
from onnx_iron.provider.rules import lower
from onnx_iron.provider.schedule import schedule
from onnx_iron.provider.symbols import Numbers, Symbol

_log = logging.getLogger("onnx_iron")


class CompileError(Exception):
    """A subgraph that was claimed and can't be compiled for the shapes of a call."""


@dataclass(frozen=True)
class Subgraph:
    """Steps in an order that leaves a state to be updated in place.

    Attributes:
        shapes: the inputs'; what of them is a symbol stands for other sizes, too.
        numbers: where the symbols are from.
        general: whether there are symbols.
        constant: which inputs never change.
        placed: the roots that live in an output's buffer, with the output's number.
        pairs: (input, output) numbers that may be one buffer.
    """

    lowering: Lowering
    steps: list[KernelCall]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    numbers: Numbers
    general: bool
    constant: tuple[bool, ...]
    placed: dict[str, int]
    pairs: list[tuple[int, int]]

    def memory(self, name: str) -> str:
        """A name for the bytes that a value is in: equal for roots that may share them."""
        root = self.lowering.resolve(name)[0]
        if root in self.placed:
            return f"output {self.placed[root]}"
        return next((f"output {o}" for i, o in self.pairs if self.inputs[i] == root), root)

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


def lower_for_all(graph: GraphDescription, shapes: Sequence[Shape]) -> Subgraph:
    """Lower and schedule a claimed group of nodes, for other shapes than these as far as it goes.

    Raises:
        CompileError: a node that these shapes do not fit, by name.
    """
    try:
        return lower_subgraph(graph, shapes, general=True)
    except Exception:  # a rule that needs its numbers otherwise, or an error of the model's
        _log.debug("%s is planned for its shapes alone", graph.name, exc_info=True)
        return lower_subgraph(graph, shapes)


def lower_subgraph(
    graph: GraphDescription, shapes: Sequence[Shape], general: bool = False
) -> Subgraph:
    """Lower and schedule a claimed group of nodes.

    Args:
        graph: the nodes, and what is known of their values.
        shapes: of the graph's inputs.
        general: whether the dimensions that the model leaves open become symbols.

    Raises:
        CompileError: a node that these shapes do not fit, by name.
    """
    numbers = Numbers()
    shapes = tuple(
        border_shape(numbers, number, graph.values[name], shape, general)
        for number, (name, shape) in enumerate(zip(graph.inputs, shapes, strict=True))
    )
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
            raise CompileError(f"{node}: {refusal}") from refusal
        except Exception as error:
            raise CompileError(f"{node}: {type(error).__name__}: {error}") from error
    fuse(lowering)
    plan = schedule(lowering, graph.inputs, constant, graph.outputs)
    return Subgraph(
        lowering=lowering,
        steps=plan.steps,
        inputs=graph.inputs,
        outputs=graph.outputs,
        shapes=shapes,
        numbers=numbers,
        general=any(isinstance(dim, Symbol) for shape in shapes for dim in shape),
        constant=tuple(constant),
        placed=plan.placed,
        pairs=plan.pairs,
    )


def border_shape(
    numbers: Numbers, number: int, value: ValueInfo, shape: Shape, general: bool
) -> Shape:
    """An input's shape, symbols for the dimensions that may differ in another call."""
    if value.constant:
        return shape
    declared = value.dims
    if declared is None or len(declared) != len(shape):
        declared = ("",) * len(shape)
    return tuple(
        numbers.dim(dim, number, axis)
        if general and not isinstance(declared[axis], int)
        else numbers.fix(dim, number, axis)
        for axis, dim in enumerate(shape)
    )
