"""Rotary embedding by tables of cosines and sines: ONNX's, and com.microsoft's."""

from __future__ import annotations

from onnx_iron.dtypes import FLOATS, INT32, INT64
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import standard
from onnx_iron.provider.standard.microsoft import DOMAIN
from onnx_iron.provider.standard.rule import rule


@rule("RotaryEmbedding", since=23, newest=23)
def rotary_embedding(op: Operation) -> None:
    positions = op.input(3) if op.has(3) else None
    _rotary(op, 1, 2, positions, 3, int(op.attribute("rotary_embedding_dim", 0)))


@rule("RotaryEmbedding", since=1, newest=1, domain=DOMAIN)
def rotary_embedding_of_microsoft(op: Operation) -> None:
    scale = op.attribute("scale", 1.0)
    op.require(scale == 1.0, f"scale is {scale}, the kernel has 1")
    packed = op.attribute("is_packed_batching", 0)
    op.require(not packed, "it has packed batches")
    _rotary(op, 2, 3, op.input(1), 1, int(op.attribute("rotary_embedding_dim", 0)))


def _rotary(
    op: Operation, cosines: int, sines: int, positions: str | None, place: int, turned: int
) -> None:
    spec = op.spec(0)
    op.require(spec.dtype in FLOATS, f"its input is {spec.dtype.name}")
    if len(spec.shape) == 4:
        batch, heads, length, width = spec.shape
    else:
        op.require(len(spec.shape) == 3, f"its input is {spec}")
        batch, length, hidden = spec.shape
        heads = int(op.attribute("num_heads", 0))
        if not heads and turned:
            op.refuse("num_heads is missing")
        cos = op.spec(cosines)
        width = hidden // heads if heads else 2 * cos.shape[-1]
        op.require(width > 0 and hidden % width == 0, f"{hidden} elements are no whole heads")
        heads = hidden // width
    dim = turned or width
    op.require(dim % 2 == 0 and 0 < dim <= width, f"{dim} of {width} elements turn")
    tables = [op.spec(cosines), op.spec(sines)]
    for table in tables:
        op.require(table.dtype == spec.dtype, f"a table is {table.dtype.name} for {spec}")
        op.require(table.shape[-1:] == (dim // 2,), f"a table is {table}, {dim // 2} columns fit")
    op.require(tables[0] == tables[1], f"tables are {tables[0]} and {tables[1]}")
    inputs: list[str | None] = [op.input(0), op.input(cosines), op.input(sines)]
    if positions is None:
        expected = (batch, length, dim // 2)
        op.require(tables[0].shape == expected, f"tables are {tables[0]}, expected {expected}")
    else:
        given = op.spec(place)
        op.require(len(tables[0].shape) == 2, f"tables are {tables[0]}")
        op.require(given.dtype in (INT32, INT64), f"positions are {given.dtype.name}")
        offset = given.shape in ((), (1,)) and (batch, length) != (1, 1)
        fits = offset or given.shape == (batch, length) or (batch, length) == (1, 1)
        op.require(fits, f"positions are {given}, expected {(batch, length)}")
        inputs.append(positions)
    operator = standard(
        "RotaryEmbedding",
        heads=heads,
        turned=dim,
        interleaved=int(op.attribute("interleaved", 0)),
    )
    op.step(operator, inputs, [op.output(spec)])
