"""A trace as an ONNX model: steps become nodes, writes become values, states inputs and outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_iron.dtypes import FLOATS, onnx_type
from onnx_iron.export.metadata import describe, used_values
from onnx_iron.export.weights import Placed, initializer
from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.region import Region
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.graph.value import FloorDiv, Symbol, Value
from onnx_iron.operators import DOMAIN, OPERATORS, VERSION, Op
from onnx_iron.operators.body import Body, function

# Function bodies use operators that all runtimes of this opset have.
OPSET = 21
_IR_VERSION = 10
_PRODUCER, _PRODUCER_VERSION = "onnx-iron", "0.1.0"


@dataclass(frozen=True)
class Options:
    """How a model is written.

    Attributes:
        dialect: "iron" for the domain's operators with function bodies, "standard" for standard
            operators alone.
        io_dtype: the dtype of float inputs and outputs, None to keep the graph's.
        state_dtype: the dtype of past and present states, None to keep the graph's.
    """

    dialect: str = "iron"
    io_dtype: np.dtype[Any] | None = None
    state_dtype: np.dtype[Any] | None = None


def build_model(
    trace: Trace,
    name: str,
    placed: Mapping[str, Placed],
    options: Options,
    metadata: Mapping[str, str],
) -> onnx.ModelProto:
    """The ONNX model of a trace, its weights where ``placed`` says or in the model itself."""
    return _Builder(trace, placed, options).model(name, metadata)


class _Builder:
    def __init__(self, trace: Trace, placed: Mapping[str, Placed], options: Options) -> None:
        self.trace = trace
        self.placed = placed
        self.options = options
        self.nodes: list[onnx.NodeProto] = []
        self.functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.infos: dict[str, onnx.ValueInfoProto] = {}
        self.values: dict[tuple[Role, str], str] = {}  # a base handle -> its ONNX value
        self.versions: dict[str, str] = {}  # state -> its value after the writes so far
        self.parts: dict[tuple[Any, ...], str] = {}  # reshapes and slices already made
        self.names: dict[str, int] = {}
        self.written = _written_states(trace)
        # The standard dialect is as new as the operators used need.
        needed = [step.op.standard_opset for step in trace.steps]
        self.opset = max([OPSET, *needed]) if options.dialect == "standard" else OPSET

    # -- the whole --------------------------------------------------------------------------

    def model(self, name: str, metadata: Mapping[str, str]) -> onnx.ModelProto:
        self._declare_inputs()
        for step in self.trace.steps:
            self._step(step)
        self._declare_outputs()
        graph = helper.make_graph(
            self.nodes,
            name,
            self.inputs,
            self.outputs,
            list(self.initializers.values()),
            value_info=list(self.infos.values()),
        )
        standard = self.options.dialect == "standard"
        imports = [helper.make_opsetid("", self.opset)]
        if not standard:
            imports.append(helper.make_opsetid(DOMAIN, VERSION))
        model = helper.make_model(
            graph,
            opset_imports=imports,
            functions=[self.functions[key] for key in sorted(self.functions)],
            producer_name=_PRODUCER,
            producer_version=_PRODUCER_VERSION,
            ir_version=max(
                _IR_VERSION, helper.find_min_ir_version_for(imports, ignore_unknown=True)
            ),
        )
        described = {
            **metadata,
            "onnx_iron.version": str(VERSION),
            "onnx_iron.states": json.dumps(self._described_states()),
            **describe(self.trace),
        }
        helper.set_model_props(model, {key: described[key] for key in sorted(described)})
        return model

    def _declare_inputs(self) -> None:
        # Names that a caller sees are theirs before any intermediate takes one.
        for name in (*self.trace.inputs, *self.trace.value_names, *self.trace.outputs):
            self.names.setdefault(name, 1)
        for name, handle in self.trace.inputs.items():
            outside = self._boundary_dtype(handle.dtype, self.options.io_dtype)
            self._input(name, outside, handle.shape)
            self.values[Role.INPUT, name] = self._cast(name, outside, handle.dtype)
        for name in used_values(self.trace):
            self._input(name, np.dtype(np.int32), ())
        for name, state in self.trace.states.items():
            if state.scratch:
                zeros = helper.make_tensor(
                    f"scratch.{name}.zero",
                    onnx_type(state.dtype),
                    [1],
                    b"\0" * state.dtype.itemsize,
                    raw=True,
                )
                shape = self._constant(np.array(state.shape, np.int64))
                self.versions[name] = self._node(
                    "ConstantOfShape", [shape], f"scratch.{name}", attributes={"value": zeros}
                )
                continue
            outside = self._boundary_dtype(state.dtype, self.options.state_dtype)
            self._input(f"past.{name}", outside, state.shape)
            self.versions[name] = self._cast(f"past.{name}", outside, state.dtype)
        for name, weight in self.trace.weights.items():
            unique = self._unique(name)
            self.initializers[unique] = initializer(unique, weight, self.placed.get(name))
            self.values[Role.WEIGHT, name] = unique

    def _declare_outputs(self) -> None:
        wanted: list[tuple[str, str, np.dtype[Any], tuple[int, ...], np.dtype[Any] | None]] = [
            (name, self._value(handle), handle.dtype, handle.shape, self.options.io_dtype)
            for name, handle in self.trace.outputs.items()
        ]
        for name, state in self.trace.states.items():
            if name in self.written:
                wanted.append(
                    (
                        f"present.{name}",
                        self.versions[name],
                        state.dtype,
                        state.shape,
                        self.options.state_dtype,
                    )
                )
        made = {output for node in self.nodes for output in node.output}
        renamed: dict[str, str] = {}
        for name, value, dtype, shape, boundary in wanted:
            outside = self._boundary_dtype(dtype, boundary)
            if outside != dtype:
                self._add("Cast", [value], [name], name, {"to": onnx_type(outside)})
            elif value in made and value not in renamed:
                renamed[value] = name
            else:  # an input or a weight, or a value that is an output already
                self._add("Identity", [value], [name], name, {})
            self.outputs.append(helper.make_tensor_value_info(name, onnx_type(outside), shape))
        taken: set[str] = set()
        for info in (*self.inputs, *self.outputs):
            if info.name in taken:
                raise ValueError(
                    f"export(): {info.name} is the name of a state's input or output and of "
                    "another input or output; rename that one"
                )
            taken.add(info.name)
        self._rename(renamed)

    def _rename(self, renamed: Mapping[str, str]) -> None:
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    names[i] = renamed.get(name, name)
        for name in renamed:
            self.infos.pop(name, None)

    def _described_states(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "input": f"past.{name}",
                "output": f"present.{name}" if name in self.written else None,
                "shape": list(state.shape),
                "dtype": self._boundary_dtype(state.dtype, self.options.state_dtype).name,
            }
            for name, state in self.trace.states.items()
            if not state.scratch
        ]

    # -- steps ------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        destination = step.outputs[0]
        if destination.base.role is Role.STATE:
            source = next(step.tensors())
            bounds = {**destination.valid, **source.valid}
            self._write(destination, self._value(source), source.shape, bounds)
            return
        source_handle = next(step.tensors(), None)
        if step.op.name == "Copy" and source_handle is not None and source_handle.role is Role.VIEW:
            self.values[Role.INTERMEDIATE, destination.name] = self._value(source_handle)
            return
        inputs = [self._operand(operand) for operand in step.inputs]
        shapes = [
            operand.shape if isinstance(operand, Handle) else None if operand is None else ()
            for operand in step.inputs
        ]
        names = [self._value_name(handle.name) for handle in step.outputs]
        made = self._operator(step.op, step.name, inputs, shapes, names)
        for handle, value in zip(step.outputs, made, strict=True):
            self.values[Role.INTERMEDIATE, handle.name] = value
            self._info(value, handle.dtype, handle.shape)

    def _operator(
        self,
        op: Op,
        name: str,
        inputs: list[str],
        shapes: list[tuple[int, ...] | None],
        outputs: list[str],
    ) -> list[str]:
        """Add an operator of the domain, as a node with a function or as standard nodes."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        shapes = shapes[: len(inputs)]
        given = [d.name if value else None for d, value in zip(op.inputs, inputs, strict=False)]
        named_shapes = {
            n: s for n, s in zip(given, shapes, strict=True) if n is not None and s is not None
        }
        if self.options.dialect == "standard":
            by_name = {value: named_shapes[n] for n, value in zip(given, inputs, strict=True) if n}
            body = Body(
                {**by_name, **named_shapes},
                op.attributes(),
                prefix=f"{name}/",
                references=False,
                opset=self.opset,
            )
            made = op.standard(body, *(value or None for value in inputs))
            self.nodes.extend(body.nodes)
            return list(made) if isinstance(made, tuple) else [made]
        overload = op.variant(shapes)
        if (op.name, overload) not in self.functions:
            body = Body(named_shapes, op.attributes(), opset=OPSET)
            made = op.body(body, *given)
            self.functions[op.name, overload] = function(
                DOMAIN,
                op.name,
                overload,
                [n or f"{d.name}_omitted" for n, d in zip(given, op.inputs, strict=False)],
                made if isinstance(made, tuple) else (made,),
                body,
                {**op.attributes(), **op.defaults()},
                OPSET,
            )
        self._add(op.name, inputs, outputs, name, op.attributes(), DOMAIN, overload)
        return outputs

    def _operand(self, operand: Operand) -> str:
        if operand is None:
            return ""
        return self._value(operand) if isinstance(operand, Handle) else self._scalar(operand)

    # -- tensors ----------------------------------------------------------------------------

    def _value(self, handle: Handle, valid: Mapping[int, Value] | None = None) -> str:
        """The ONNX value of a handle; of a state, after the writes so far."""
        bounds = {**(valid or {}), **handle.valid}
        if handle.parent is None:
            if handle.role is Role.STATE:
                return self.versions[handle.name]
            return self.values[handle.role, handle.name]
        if handle.permutation is not None:
            turned = {handle.permutation[axis]: rows for axis, rows in bounds.items()}
            parent = self._value(handle.parent, turned)
            return self._once(
                ("Transpose", parent, handle.permutation),
                lambda: self._node(
                    "Transpose",
                    [parent],
                    f"{parent}.transpose",
                    attributes={"perm": handle.permutation},
                ),
            )
        if handle.index is None or not handle.index.regions:
            same = handle.shape == handle.parent.shape
            parent = self._value(handle.parent, bounds if same else None)
            return self._reshape(parent, handle.parent.shape, handle.shape)
        value, shape = self._value(handle.parent), handle.parent.shape
        for region in handle.index.regions:
            rows = None if region.bound_axis is None else bounds.get(region.bound_axis)
            value = self._take(value, shape, region, rows, handle)
            shape = region.shape
        return value

    def _take(
        self, value: str, shape: tuple[int, ...], region: Region, rows: Value | None, handle: Handle
    ) -> str:
        seen = self._reshape(value, shape, region.view_shape)
        taken_shape = _with(region.view_shape, region.axis, region.length)
        if isinstance(region.start, Value):
            key = ("Narrow", seen, region.axis, region.start, region.length, rows)
            taken = self._once(key, lambda: self._narrow(seen, region, rows, handle))
        else:
            bounds = (region.start, region.start + region.length)
            taken = self._once(
                ("Slice", seen, region.axis, bounds),
                lambda: self._node(
                    "Slice",
                    [
                        seen,
                        *(self._constant(np.array([n], np.int64)) for n in (*bounds, region.axis)),
                    ],
                    f"{value}.slice",
                ),
            )
        self._info(taken, handle.dtype, taken_shape)
        return self._reshape(taken, taken_shape, region.shape)

    def _narrow(self, seen: str, region: Region, rows: Value | None, handle: Handle) -> str:
        op = OPERATORS["Narrow"].from_attributes({"axis": region.axis, "length": region.length})
        inputs = [seen, self._scalar(region.start), self._scalar(rows) if rows is not None else ""]
        shapes = [region.view_shape, (), () if rows is not None else None]
        name = self._unique(f"{handle.base.name}.narrow")
        return self._operator(op, name, inputs, shapes, [name])[0]

    def _write(
        self, handle: Handle, source: str, shape: tuple[int, ...], bounds: Mapping[int, Value]
    ) -> None:
        """A write through a handle: a new value of its state, part by part from the inside."""
        if shape != handle.shape:  # one number for all entries
            target = self._constant(np.array(handle.shape, np.int64))
            source = self._node("Expand", [source, target], f"{source}.expand")
        if handle.parent is None:
            self.versions[handle.name] = self._bounded(handle, source, handle.shape, bounds)
            return
        if handle.permutation is not None:
            inverse = tuple(np.argsort(handle.permutation))
            turned = self._node(
                "Transpose", [source], f"{source}.transpose", attributes={"perm": inverse}
            )
            bounds = {handle.permutation[axis]: rows for axis, rows in bounds.items()}
            self._write(handle.parent, turned, handle.parent.shape, bounds)
            return
        if handle.index is None or not handle.index.regions:
            if handle.shape == handle.parent.shape:
                self._write(handle.parent, source, handle.shape, bounds)
                return
            whole = self._bounded(handle, source, handle.shape, bounds)
            back = self._reshape(whole, handle.shape, handle.parent.shape)
            self._write(handle.parent, back, handle.parent.shape, {})
            return
        self._scatter(handle, source, bounds)

    def _scatter(self, handle: Handle, source: str, bounds: Mapping[int, Value]) -> None:
        assert handle.parent is not None
        assert handle.index is not None
        regions = handle.index.regions
        # What each region is a part of, from the outside in.
        outer = [(self._value(handle.parent), handle.parent.shape)]
        for region in regions[:-1]:
            value, shape = outer[-1]
            rows = None if region.bound_axis is None else bounds.get(region.bound_axis)
            outer.append((self._take(value, shape, region, rows, handle), region.shape))
        # Which region counts the bounded axis; where none does, that axis is kept as it is.
        bounded = [region.bound_axis in bounds for region in regions]
        if bounds and not any(bounded):
            source = self._bounded(handle, source, handle.shape, bounds)
        shape = handle.shape
        for region, (value, outer_shape) in zip(reversed(regions), reversed(outer), strict=True):
            rows = None if region.bound_axis is None else bounds.get(region.bound_axis)
            seen = self._reshape(value, outer_shape, region.view_shape)
            part_shape = _with(region.view_shape, region.axis, region.length)
            part = self._reshape(source, shape, part_shape)
            written = self._slice_scatter(
                handle, seen, region.view_shape, part, part_shape, region.axis, region.start, rows
            )
            source, shape = self._reshape(written, region.view_shape, outer_shape), outer_shape
        self._write(handle.parent, source, handle.parent.shape, {})

    def _bounded(
        self, handle: Handle, source: str, shape: tuple[int, ...], bounds: Mapping[int, Value]
    ) -> str:
        """``source`` where it is valid, what the handle held elsewhere."""
        for axis, rows in bounds.items():
            held = self._value(handle)
            source = self._slice_scatter(handle, held, shape, source, shape, axis, 0, rows)
        return source

    def _slice_scatter(
        self,
        handle: Handle,
        value: str,
        shape: tuple[int, ...],
        source: str,
        source_shape: tuple[int, ...],
        axis: int,
        start: int | Value,
        rows: Value | None,
    ) -> str:
        op = OPERATORS["SliceScatter"].from_attributes({"axis": axis})
        inputs = [
            value,
            source,
            self._scalar(start),
            self._scalar(rows) if rows is not None else "",
        ]
        shapes = [shape, source_shape, (), () if rows is not None else None]
        name = self._unique(f"{handle.base.name}.write")
        made = self._operator(op, name, inputs, shapes, [name])[0]
        self._info(made, handle.dtype, shape)
        return made

    def _reshape(self, value: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        if old == new:
            return value
        target = self._constant(np.array(new, np.int64))
        return self._once(
            ("Reshape", value, new),
            lambda: self._node("Reshape", [value, target], f"{value}.reshape"),
        )

    def _cast(self, value: str, given: np.dtype[Any], wanted: np.dtype[Any]) -> str:
        if given == wanted:
            return value
        return self._node(
            "Cast", [value], f"{value}.{wanted.name}", attributes={"to": onnx_type(wanted)}
        )

    # -- per-call values --------------------------------------------------------------------

    def _scalar(self, value: int | Value) -> str:
        """An int32 scalar: an input, a constant, or the nodes that compute it."""
        if not isinstance(value, Value):
            return self._constant(np.array(value, np.int32))
        return self._once(("Value", value), lambda: self._affine(value))

    def _affine(self, value: Value) -> str:
        total = ""
        for symbol, factor in value.terms:
            term = self._symbol(symbol)
            if factor != 1:
                term = self._node("Mul", [term, self._scalar(factor)], "scalar")
            total = self._node("Add", [total, term], "scalar") if total else term
        if not value.constant and total:
            return total
        constant = self._scalar(value.constant)
        return self._node("Add", [total, constant], "scalar") if total else constant

    def _symbol(self, symbol: Symbol) -> str:
        if not isinstance(symbol, FloorDiv):
            return symbol
        # Div truncates; without the remainder (which has the divisor's sign) it is exact.
        numerator, divisor = self._scalar(symbol.numerator), self._scalar(symbol.divisor)
        rest = self._node("Mod", [numerator, divisor], "scalar")
        whole = self._node("Sub", [numerator, rest], "scalar")
        return self._node("Div", [whole, divisor], "scalar")

    # -- parts ------------------------------------------------------------------------------

    def _node(
        self,
        op_type: str,
        inputs: list[str],
        stem: str,
        *,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        name = self._unique(stem)
        self._add(op_type, inputs, [name], name, attributes or {})
        return name

    def _add(
        self,
        op_type: str,
        inputs: list[str],
        outputs: list[str],
        name: str,
        attributes: Mapping[str, Any],
        domain: str = "",
        overload: str = "",
    ) -> None:
        self.nodes.append(
            helper.make_node(
                op_type,
                inputs,
                outputs,
                name,
                domain=domain,
                overload=overload or None,
                **attributes,
            )
        )

    def _once(self, key: tuple[Any, ...], make: Any) -> str:
        if key not in self.parts:
            self.parts[key] = make()
        return self.parts[key]

    def _constant(self, array: np.ndarray[Any, Any]) -> str:
        text = "x".join(map(str, array.reshape(-1).tolist())) or "scalar"
        name = f"constant.{array.dtype.name}.{array.ndim}d.{text}"
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def _value_name(self, name: str) -> str:
        """A step's name for its result; a weight of that name is a value of its own."""
        return self._unique(f"{name}.output" if name in self.trace.weights else name)

    def _unique(self, stem: str) -> str:
        count = self.names.get(stem, 0)
        self.names[stem] = count + 1
        if not count:
            return stem
        return self._unique(f"{stem}.{count}")

    def _input(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.names[name] = 1
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(dtype), shape))

    def _info(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.infos[name] = helper.make_tensor_value_info(name, onnx_type(dtype), shape)

    @staticmethod
    def _boundary_dtype(inside: np.dtype[Any], wanted: np.dtype[Any] | None) -> np.dtype[Any]:
        return inside if wanted is None or inside not in FLOATS else wanted


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _written_states(trace: Trace) -> set[str]:
    """The states that a caller keeps and that the steps write."""
    return {
        handle.base.name
        for step in trace.steps
        for handle in step.outputs
        if handle.base.role is Role.STATE and not trace.states[handle.base.name].scratch
    }
