"""Who makes an operator's design."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from onnx_iron.dtypes import BFLOAT16, Array, Spec
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.design import Design, Refusal
from onnx_iron.kernels.designs.flat import flat
from onnx_iron.kernels.designs.request import RefusedError, Request
from onnx_iron.kernels.designs.target import Target
from onnx_iron.operators.base import Kind, Op

_KERNELS = Path(__file__).parent.parent / "aie"

Maker: TypeAlias = Callable[[Request], Design]


def maker_of(op: type[Op]) -> Maker | None:
    """What makes an operator's designs: ``design`` in the file of its name, or flat tiles where an
    elementwise operator has an AIE kernel and no such file; None where it has neither.

    An operator without is whole: its CPU kernel or its body runs it.
    """
    maker = _maker(op.file)
    if maker is None and op.elementwise and (_KERNELS / f"{op.file}.cc").is_file():
        return elementwise
    return maker


@functools.cache
def _maker(file: str) -> Maker | None:
    name = f"{__package__}.{file}"
    if importlib.util.find_spec(name) is None:
        return None
    maker: Maker | None = getattr(importlib.import_module(name), "design", None)
    return maker


def elementwise(request: Request) -> Design:
    """Operands of one size over flat tiles, through the kernel ``<stem>_bf16``.

    Raises:
        RefusedError: an operand of another size.
    """
    names = tuple(declared.name for declared in request.op.inputs if request.has(declared.name))
    for name in names:
        if request.size(name) != request.size("y"):
            raise RefusedError(f"{name} is {request.shape(name)}, the output {request.shape('y')}")
    return flat(request, f"{request.op.stem}_bf16", names)


def design_for(
    op: Op,
    specs: Sequence[Spec | None],
    target: Target,
    constants: Mapping[str, Array] | None = None,
) -> Design | Refusal:
    """The design that runs an operator on a target, or why there is none.

    Args:
        specs: shapes and dtypes of the inputs in order, None for one that is omitted.
        constants: values of inputs that are known now, by name.

    Raises:
        TypeError, ValueError: inputs that the operator does not take.
    """
    results = op.infer(specs)
    given = {
        declared.name: spec
        for declared, spec in zip(op.inputs, specs, strict=False)
        if spec is not None
    }
    maker = maker_of(type(op))
    if maker is None:
        return Refusal(f"{op.name} has no design: there is no kernels/designs/{op.file}.py")
    for declared in op.inputs:
        if declared.kind in (Kind.T, Kind.ANY, Kind.T_OR_FLOAT32) and declared.name in given:
            dtype = given[declared.name][1]
            if dtype != BFLOAT16:
                return Refusal(
                    f"{op.stem}: {declared.name} is {dtype.name}; the kernels take bfloat16"
                )
    if any(0 in spec[0] for spec in given.values()):
        return Refusal(f"{op.stem}: an operand without elements")
    request = Request(
        op, target, {**given, **dict(zip(op.outputs, results, strict=True))}, constants or {}
    )
    try:
        return checked(maker(request))
    except RefusedError as refused:
        return Refusal(f"{op.stem}: {refused}")
