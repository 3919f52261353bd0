"""Operators as ONNX nodes: of the domain, each with a function body, or standard ones."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_iron.dtypes import FLOATS, Spec
from onnx_iron.export.nodes import Nodes
from onnx_iron.operators import DOMAIN, Op
from onnx_iron.operators.body import Body, function

# Function bodies use operators that all runtimes of this opset have.
OPSET = 21


class Functions:
    """Adds operators to a model's nodes, and holds the functions that they need.

    Args:
        nodes: where they are added.
        standard_opset: the opset of standard operators to write instead; None for the domain's.
    """

    def __init__(self, nodes: Nodes, standard_opset: int | None) -> None:
        self._nodes = nodes
        self._standard_opset = standard_opset
        self._functions: dict[tuple[str, str], onnx.FunctionProto] = {}

    def all(self) -> list[onnx.FunctionProto]:
        """The functions, ordered by name."""
        return [self._functions[key] for key in sorted(self._functions)]

    def add(
        self,
        op: Op,
        name: str,
        inputs: Sequence[str],
        specs: Sequence[Spec | None],
        outputs: Sequence[str],
    ) -> Sequence[str]:
        """Add an operator, its omitted inputs named ``""``; returns the values it gives."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        specs = specs[: len(inputs)]
        shapes = [None if spec is None else spec.shape for spec in specs]
        declared = op.declared(len(inputs))
        given = [d.name if value else None for d, value in zip(declared, inputs, strict=False)]
        named_shapes = {
            n: s for n, s in zip(given, shapes, strict=True) if n is not None and s is not None
        }
        # All runtimes compute with integers themselves.
        floats = op.moves or any(spec is not None and spec.dtype in FLOATS for spec in specs)
        if self._standard_opset is not None or not floats or not op.domain:
            by_name = {value: named_shapes[n] for n, value in zip(given, inputs, strict=True) if n}
            body = Body(
                {**by_name, **named_shapes},
                op.attributes(),
                prefix=f"{name}/",
                references=False,
                opset=self._standard_opset or OPSET,
                floats=floats,
            )
            build = op.body if self._standard_opset is None else op.standard
            made = build(body, *(value or None for value in inputs))
            self._nodes.nodes.extend(body.nodes)
            return made if isinstance(made, tuple) else (made,)
        overload = op.variant(shapes)
        if (op.name, overload) not in self._functions:
            body = Body(named_shapes, op.attributes(), opset=OPSET)
            made = op.body(body, *given)
            self._functions[op.name, overload] = function(
                DOMAIN,
                op.name,
                overload,
                [n or f"{d.name}_omitted" for n, d in zip(given, declared, strict=False)],
                made if isinstance(made, tuple) else (made,),
                body,
                {**op.attributes(), **op.defaults()},
                OPSET,
            )
        self._nodes.add(op.name, inputs, outputs, name, op.attributes(), DOMAIN, overload)
        return outputs
