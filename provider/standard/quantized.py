"""Operators of com.microsoft whose weights are in codes, of four or eight bits."""

from __future__ import annotations

from typing import Any

from onnx_iron.dtypes import FLOAT32, FLOATS, INDICES, UINT8, Spec
from onnx_iron.operators.arithmetic import Add
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.microsoft import DOMAIN
from onnx_iron.provider.standard.rule import rule

# Codes of a weight from which onnxruntime's own float32 kernel, where it has a fast one, gains more
# than the switch to it costs: docs/performance.md.
FASTER_ELSEWHERE = 1 << 16


@rule("MatMulNBits", since=1, newest=1, domain=DOMAIN)
def matmul_nbits(op: Operation) -> None:
    a, codes = op.spec(0), op.codes(1)
    op.require(a.dtype in FLOATS and bool(a.shape), f"A is {a}")
    op.require(codes.dtype == UINT8 and len(codes.shape) == 3, f"B is {codes}")
    op.require(not op.has(4), "it has g_idx, an order of K of its own")
    op.require(not op.attribute("weight_prepacked", 0), "its weight is packed for another device")
    inner, outer = op.attribute("K"), op.attribute("N")
    fits = (inner, outer) == (a.shape[-1], codes.shape[0])
    op.require(fits, f"K is {inner} and N {outer} for {a} and {codes}")
    blocks, level = _blocks(op), op.attribute("accuracy_level", 0)
    # At level 4 onnxruntime rounds A to eight bits; a model has one way of it in all its products.
    fast_there = level == 4 or (blocks["bits"] == 4 and inner * outer >= FASTER_ELSEWHERE)
    op.leave_if(
        a.dtype == FLOAT32 and fast_there,
        f"for float32 by {outer} x {inner} codes of {blocks['bits']} bits, accuracy_level {level}",
    )
    spec = Spec((*a.shape[:-1], outer), a.dtype)
    product = op.temporary(spec) if op.has(5) else op.output(spec)
    # Of accuracy_level, which says how exact it is at the least, float32 is the best.
    operator = standard("MatMulNBits", **blocks)
    op.step(operator, _operands(op), [product])
    if op.has(5):
        bias = op.spec(5)
        op.require(bias == Spec((outer,), a.dtype), f"bias is {bias} for {spec}")
        op.step(Add(), [product, op.input(5)], [op.output(spec)])


@rule("GatherBlockQuantized", since=1, newest=1, domain=DOMAIN)
def gather_block_quantized(op: Operation) -> None:
    data, indices, scales = op.codes(0), op.spec(1), op.spec(2)
    op.require(data.dtype == UINT8, f"data is {data.dtype.name}")
    op.require(len(data.shape) == 2, f"data is {data}, no matrix")
    op.require(indices.dtype in INDICES, f"indices are {indices.dtype.name}")
    op.require(scales.dtype in FLOATS, f"scales are {scales.dtype.name}")
    axes = op.axis_of("gather_axis", 0, 2), op.axis_of("quantize_axis", 1, 2)
    op.require(axes == (0, 1), f"its axes are {axes}, the kernel has rows in blocks, (0, 1)")
    blocks = _blocks(op)
    width = data.shape[1] * (8 // blocks["bits"])
    output = op.output(Spec((*indices.shape, width), scales.dtype))
    op.step(standard("GatherBlockQuantized", **blocks), _operands(op), [output])


def _blocks(op: Operation) -> dict[str, Any]:
    bits, size = int(op.attribute("bits", 4)), int(op.attribute("block_size", 128))
    op.require(bits in (4, 8), f"its codes have {bits} bits; the kernel has 4 and 8")
    return {"bits": bits, "block_size": size}


def _operands(op: Operation) -> list[str | None]:
    """The first three inputs, and zero points where there are any."""
    return [op.input(index) for index in range(4 if op.has(3) else 3)]
