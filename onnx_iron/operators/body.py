"""A small builder for ONNX function bodies and graphs, in standard operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_iron.dtypes import FLOAT32, DType, onnx_type


class Body:
    """Nodes in order, each call naming its result.

    Args:
        shapes: the shapes of the named inputs, for bodies that are built for a rank.
        attributes: the node's attribute values, used by ``attribute`` where ``references`` is off.
        prefix: put before every result's name.
        references: attributes are read by reference (in a function), not as constants (in a graph).
        opset: the version of the standard operators.
        floats: the operands are floats; integers are computed with as they are.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        attributes: Mapping[str, Any],
        *,
        prefix: str = "",
        references: bool = True,
        opset: int = 21,
        floats: bool = True,
    ) -> None:
        self.opset = opset
        self._floats = floats
        self.nodes: list[onnx.NodeProto] = []
        self._shapes = shapes
        self._attributes = attributes
        self._prefix = prefix
        self._references = references

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an input."""
        return self._shapes[name]

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a standard operator's node; returns its output's name."""
        return self.ops(op_type, *inputs, outputs=1, **attributes)[0]

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a standard operator's node of several outputs; returns their names."""
        made = [f"{self._prefix}{op_type.lower()}_{len(self.nodes)}"]
        made += [f"{made[0]}.{i}" for i in range(1, outputs)]
        # Named in a function too: onnxruntime up to 1.20 names what it fuses after them, and wants
        # the names to differ.
        self.nodes.append(helper.make_node(op_type, inputs, made, name=made[0], **attributes))
        return made

    def ints(self, *values: int) -> str:
        """A constant int64 vector."""
        return self._constant(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """A constant int64 scalar."""
        return self._constant(np.array(value, np.int64))

    def real(self, value: float) -> str:
        """A constant float32 scalar."""
        return self._constant(np.array(value, np.float32))

    def _constant(self, array: np.ndarray[Any, Any]) -> str:
        return self.op("Constant", value=numpy_helper.from_array(array))

    def attribute(self, name: str) -> str:
        """A float or integer attribute of the node, as a scalar."""
        value = self._attributes[name]
        kind = "value_float" if isinstance(value, float) else "value_int"
        result: str = self.op("Constant", **{kind: value})
        if self._references:
            reference = self.nodes[-1].attribute[0]
            reference.CopyFrom(
                onnx.AttributeProto(name=kind, ref_attr_name=name, type=reference.type)
            )
        return result

    def widen(self, name: str) -> str:
        """The operand in float32."""
        return self.op("Cast", name, to=TensorProto.FLOAT) if self._floats else name

    def narrow_like(self, name: str, like: str) -> str:
        """The result rounded to another operand's dtype."""
        return self.op("CastLike", name, like) if self._floats else name

    def cast(self, name: str, dtype: DType) -> str:
        """A value in another dtype."""
        return self.op("Cast", name, to=onnx_type(dtype))

    def scalar(self, name: str) -> str:
        """An int32 operand of one element as an int64 scalar."""
        wide = self.op("Cast", name, to=TensorProto.INT64)
        return self.op("Reshape", wide, self.ints())

    def size(self, name: str, axis: str) -> str:
        """The dimension of ``name`` at ``axis`` (the name of an int64 scalar), as a scalar."""
        return self.op("Gather", self.op("Shape", name), axis)

    def vector(self, scalar: str) -> str:
        """A scalar as a vector of one, as Slice and Concat of shapes want it."""
        return self.op("Unsqueeze", scalar, self.ints(0))

    def span(self, name: str, start: str, stop: str, axis: int) -> str:
        """``name[start:stop]`` along an axis; start and stop are vectors of one."""
        return self.op("Slice", name, start, stop, self.ints(axis))

    def scan(
        self, carried: Sequence[str], rows: Mapping[str, DType], build: ScanBody
    ) -> tuple[list[str], list[str]]:
        """Add a loop over the first axis of ``rows``, one entry of each at a time.

        Args:
            carried: float32 values that go from one entry to the next.
            rows: names and dtypes of what has an entry for each turn.
            build: adds the operators of a turn to the builder that it is given, from the names of
                what is carried and of the entries; returns what is carried on, and what is kept.

        Returns:
            What is carried in the end, and the kept values of all turns, stacked.
        """
        inner = Body({}, self._attributes, prefix=f"{self._prefix}scan_{len(self.nodes)}/")
        given = [f"{inner._prefix}carried_{i}" for i in range(len(carried))]
        entries = [f"{inner._prefix}row_{i}" for i in range(len(rows))]
        carried_on, kept = build(inner, given, entries)
        dtypes = [FLOAT32] * len(carried) + list(rows.values())
        turn = helper.make_graph(
            inner.nodes,
            "turn",
            [_declared(name, dtype) for name, dtype in zip(given + entries, dtypes, strict=True)],
            [_declared(name, FLOAT32) for name in (*carried_on, *kept)],
        )
        made = self.ops(
            "Scan",
            *carried,
            *rows,
            outputs=len(carried) + len(kept),
            body=turn,
            num_scan_inputs=len(rows),
        )
        return made[: len(carried)], made[len(carried) :]


# What a turn of a scan carries on and keeps, from what is carried and the turn's entries.
ScanBody: TypeAlias = Callable[[Body, list[str], list[str]], tuple[list[str], list[str]]]


def _declared(name: str, dtype: DType) -> onnx.ValueInfoProto:
    """A value of a scan's turn, of any shape."""
    made = helper.make_tensor_value_info(name, onnx_type(dtype), None)
    made.type.tensor_type.ClearField("shape")
    return made


def function(
    domain: str,
    name: str,
    overload: str,
    inputs: Sequence[str],
    outputs: Iterable[str],
    body: Body,
    attributes: Mapping[str, Any],
    opset: int,
) -> onnx.FunctionProto:
    """A model-local function of a finished body.

    Its attributes are declared with the values given as their defaults.
    """
    made = helper.make_function(
        domain,
        name,
        list(inputs),
        list(outputs),
        body.nodes,
        [helper.make_opsetid("", opset)],
        attribute_protos=[helper.make_attribute(k, v) for k, v in attributes.items()],
    )
    made.overload = overload
    return made
