"""A trace as an ONNX model: steps become nodes, writes become values, states inputs and outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnx_iron._version import __version__
from onnx_iron.dtypes import INT32, Spec
from onnx_iron.export.boundary import Boundary
from onnx_iron.export.functions import OPSET, Functions
from onnx_iron.export.metadata import describe
from onnx_iron.export.nodes import Nodes
from onnx_iron.export.scalars import scalar
from onnx_iron.export.tensors import Tensors
from onnx_iron.export.weights import Placed, initializer
from onnx_iron.graph.handle import Handle, Role
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.trace import Step, Trace
from onnx_iron.operators import DOMAIN, VERSION

_IR_VERSION = 10


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
    standard = options.dialect == "standard"
    # The standard dialect is as new as the operators used need.
    opset = max([OPSET, *(step.op.standard_opset for step in trace.steps if standard)])
    nodes = Nodes()
    functions = Functions(nodes, opset if standard else None)
    tensors = Tensors(nodes, functions)
    boundary = Boundary(trace, nodes, tensors, options.io_dtype, options.state_dtype)
    boundary.declare_inputs()
    for path, weight in trace.weights.items():
        unique = nodes.unique(path)
        nodes.initializers[unique] = initializer(unique, weight, placed.get(path))
        tensors.values[Role.WEIGHT, path] = unique
    for step in trace.steps:
        _add_step(step, trace, nodes, functions, tensors)
    boundary.declare_outputs()
    graph = helper.make_graph(
        nodes.nodes,
        name,
        boundary.inputs,
        boundary.outputs,
        list(nodes.initializers.values()),
        value_info=list(nodes.infos.values()),
    )
    imports = [helper.make_opsetid("", opset)]
    if not standard:
        imports.append(helper.make_opsetid(DOMAIN, VERSION))
    model = helper.make_model(
        graph,
        opset_imports=imports,
        functions=functions.all(),
        producer_name="onnx-iron",
        producer_version=__version__,
        ir_version=max(_IR_VERSION, helper.find_min_ir_version_for(imports, ignore_unknown=True)),
    )
    described = {
        **metadata,
        "onnx_iron.version": str(VERSION),
        "onnx_iron.states": json.dumps(boundary.states()),
        **describe(trace),
    }
    helper.set_model_props(model, {key: described[key] for key in sorted(described)})
    return model


def _add_step(
    step: Step, trace: Trace, nodes: Nodes, functions: Functions, tensors: Tensors
) -> None:
    destination, first = step.outputs[0], next(step.tensors(), None)
    if destination.base.role is Role.STATE:
        assert first is not None
        bounds = {**destination.valid, **first.valid}
        tensors.write(destination, tensors.read(first), first.shape, bounds)
        return
    if step.op.name == "Copy" and first is not None and first.role is Role.VIEW:
        # What is made of it by standard nodes has memory of its own.
        tensors.values[Role.INTERMEDIATE, destination.name] = tensors.read(first)
        return

    def operand(given: Operand) -> str:
        if given is None:
            return ""
        return tensors.read(given) if isinstance(given, Handle) else scalar(nodes, given)

    inputs = [operand(given) for given in step.inputs]
    specs = [
        None
        if given is None
        else Spec(given.shape, given.dtype)
        if isinstance(given, Handle)
        else Spec((), INT32)
        for given in step.inputs
    ]
    # A weight that has the step's name is a value of its own.
    names = [
        nodes.unique(f"{handle.name}.output" if handle.name in trace.weights else handle.name)
        for handle in step.outputs
    ]
    made = functions.add(step.op, step.name, inputs, specs, names)
    for handle, value in zip(step.outputs, made, strict=True):
        tensors.values[Role.INTERMEDIATE, handle.name] = value
        nodes.info(value, handle.dtype, handle.shape)
