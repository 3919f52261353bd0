"""Operators that onnxruntime's optimisers and exporters make, of the domain com.microsoft."""

from __future__ import annotations

import numpy as np

from onnx_iron.dtypes import FLOATS, Spec
from onnx_iron.operators.arithmetic import Add, Mul
from onnx_iron.operators.gelu import GELU
from onnx_iron.operators.gemm import GEMM
from onnx_iron.operators.layer_norm import LayerNorm
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.provider.lowering import Operation
from onnx_iron.provider.operator import Operator, standard
from onnx_iron.provider.standard.rule import broadcast, rule

DOMAIN = "com.microsoft"


@rule("SimplifiedLayerNormalization", since=1, newest=1)  # which onnxruntime puts into ONNX's own
@rule("SimplifiedLayerNormalization", since=1, newest=1, domain=DOMAIN)
def simplified_layer_normalization(op: Operation) -> None:
    spec, rank = op.spec(0), len(op.spec(0).shape)
    op.require(op.output_count == 1, "the deviation is asked for")
    stash = op.attribute("stash_type", 1)
    op.require(stash == 1, f"stash_type is {stash}, the kernel computes in float32 (1)")
    axis = op.axis(-1, rank)
    op.require(axis == rank - 1, f"axis is {axis}, the kernel has the last one, {rank - 1}")
    scale = op.spec(1)
    op.require(scale == Spec(spec.shape[-1:], spec.dtype), f"scale is {scale} for {spec}")
    norm = RMSNorm(float(op.attribute("epsilon", 1e-5)))
    op.step(norm, [op.input(0), op.input(1)], [op.output(spec)])


@rule("SkipSimplifiedLayerNormalization", since=1, newest=1, domain=DOMAIN)
def skip_simplified_layer_normalization(op: Operation) -> None:
    total, spec = _skipped(op, bias=3)
    norm = RMSNorm(float(op.attribute("epsilon", 1e-5)))
    op.step(norm, [total, _row(op, 2, spec)], [op.output(spec)])


@rule("SkipLayerNormalization", since=1, newest=1, domain=DOMAIN)
def skip_layer_normalization(op: Operation) -> None:
    total, spec = _skipped(op, bias=4)
    norm, weight = LayerNorm(float(op.attribute("epsilon", 1e-5))), _row(op, 2, spec)
    if not op.has(3):
        op.step(norm, [total, weight], [op.output(spec)])
        return
    normed = op.temporary(spec)
    op.step(norm, [total, weight], [normed])
    op.step(Add(), [normed, _row(op, 3, spec)], [op.output(spec)])


def _skipped(op: Operation, bias: int) -> tuple[str, Spec]:
    """Input and skip, and a bias, added up: what is normalised, and the fourth output."""
    spec, skip = op.spec(0), op.spec(1)
    op.require(spec.dtype in FLOATS, f"its input is {spec.dtype.name}")
    fits = skip.dtype == spec.dtype and broadcast(op, spec.shape, skip.shape) == spec.shape
    op.require(fits, f"skip is {skip} for {spec}")
    asked = [index for index in (1, 2) if index < op.output_count and op.node.outputs[index]]
    op.require(not asked, "mean and deviation are asked for")
    kept = op.output_count > 3
    operands = [op.input(1)]
    if op.has(bias):
        operands.append(_row(op, bias, spec))
    total = op.input(0)
    for place, operand in enumerate(operands):
        last = place == len(operands) - 1
        result = op.output(spec, 3) if last and kept else op.temporary(spec)
        op.step(Add(), [total, operand], [result])
        total = result
    return total, spec


def _row(op: Operation, index: int, spec: Spec) -> str:
    """An operand with a number for each of the last axis' elements."""
    row = op.spec(index)
    op.require(row == Spec(spec.shape[-1:], spec.dtype), f"input {index} is {row} for {spec}")
    return op.input(index)


@rule("Gelu", "BiasGelu", "FastGelu", since=1, newest=1, domain=DOMAIN)
def gelu(op: Operation) -> None:
    kind, spec, x = op.node.op_type, op.spec(0), op.input(0)
    if op.has(1):
        bias = op.spec(1)
        fits = bias.dtype == spec.dtype and broadcast(op, spec.shape, bias.shape) == spec.shape
        op.require(fits, f"bias is {bias} for {spec}")
        added = op.temporary(spec)
        op.step(Add(), [x, op.input(1)], [added])
        x = added
    op.step(GELU("tanh" if kind == "FastGelu" else "none"), [x], [op.output(spec)])


@rule("QuickGelu", since=1, newest=1, domain=DOMAIN)
def quick_gelu(op: Operation) -> None:
    spec, x = op.spec(0), op.input(0)
    alpha = np.array(float(op.attribute("alpha", 1.702)), spec.dtype)
    scaled, gate = op.temporary(spec), op.temporary(spec)
    op.step(Mul(), [x, op.literal(alpha)], [scaled])
    op.step(standard("Sigmoid", elementwise=True), [scaled], [gate])
    op.step(Mul(), [x, gate], [op.output(spec)])


@rule("FusedMatMul", since=1, newest=1, domain=DOMAIN)
def fused_matmul(op: Operation) -> None:
    batched = [n for n in ("transBatchA", "transBatchB") if op.attribute(n, 0)]
    op.require(not batched, f"it has {' and '.join(batched)}")
    a, left = _turned(op, 0, "transA")
    dtype = left.dtype
    op.require(op.spec(1).dtype == dtype in FLOATS, f"operands are {left} and {op.spec(1)}")
    operator: Operator
    if op.attribute("transB", 0) and len(op.spec(1).shape) == 2 and len(left.shape) == 2:
        b, right = op.input(1), Spec(op.spec(1).shape[::-1], dtype)
        operator = GEMM(b_col_maj=True)
    else:
        b, right = _turned(op, 1, "transB")
        operator = standard("MatMul")
    ranks = min(len(left.shape), len(right.shape))
    op.require(ranks >= 2, f"an operand is no matrix: {left} and {right}")
    op.require(left.shape[-1] == right.shape[-2], f"{left} and {right} do not multiply")
    batch = broadcast(op, left.shape[:-2], right.shape[:-2])
    spec = Spec((*batch, left.shape[-2], right.shape[-1]), dtype)
    alpha = float(op.attribute("alpha", 1.0))
    if alpha == 1.0:
        op.step(operator, [a, b], [op.output(spec)])
        return
    product = op.temporary(spec)
    op.step(operator, [a, b], [product])
    op.step(Mul(), [product, op.literal(np.array(alpha, dtype))], [op.output(spec)])


def _turned(op: Operation, index: int, flag: str) -> tuple[str, Spec]:
    """An operand, its last two axes exchanged where the attribute says so."""
    spec = op.spec(index)
    rank = len(spec.shape)
    if not op.attribute(flag, 0) or rank < 2:
        return op.input(index), spec
    turned = Spec((*spec.shape[:-2], spec.shape[-1], spec.shape[-2]), spec.dtype)
    name = op.temporary(turned)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    op.step(standard("Transpose", moves=True, perm=perm), [op.input(index)], [name])
    return name, turned


@rule("EmbedLayerNormalization", since=1, newest=1, domain=DOMAIN)
def embed_layer_normalization(op: Operation) -> None:
    ids, words = op.spec(0), op.spec(2)
    op.require(len(ids.shape) == len(words.shape) == 2, f"ids are {ids}, words {words}")
    spec = Spec((*ids.shape, words.shape[1]), words.dtype)
    op.require(spec.dtype in FLOATS, f"its words are {words}")
    parts = [_taken(op, 0, 2, spec), _placed(op, spec)]
    if op.has(1):
        parts.append(_taken(op, 1, 4, spec))
    # Words and kinds are added first, as onnxruntime does.
    parts[1:] = parts[:0:-1]
    total, kept = parts[0], op.output_count > 2
    for index, part in enumerate(parts[1:], 2):
        last = index == len(parts)
        result = op.output(spec, 2) if last and kept else op.temporary(spec)
        op.step(Add(), [total, part], [result])
        total = result
    normed = op.temporary(spec)
    op.step(LayerNorm(float(op.attribute("epsilon", 1e-12))), [total, _row(op, 5, spec)], [normed])
    op.step(Add(), [normed, _row(op, 6, spec)], [op.output(spec)])
    if op.output_count > 1 and op.node.outputs[1]:
        _counted(op, ids)


def _taken(op: Operation, indices: int, table: int, spec: Spec) -> str:
    """A row of a table for each id."""
    expected = (op.spec(table).shape[0], spec.shape[-1])
    op.require(op.spec(table) == Spec(expected, spec.dtype), f"input {table} is {op.spec(table)}")
    given = op.spec(indices).shape
    op.require(given == spec.shape[:-1], f"input {indices} is {op.spec(indices)} for {spec}")
    made = op.temporary(spec)
    gather = standard("Gather", moves=True, axis=0)
    op.step(gather, [op.input(table), op.input(indices)], [made])
    return made


def _placed(op: Operation, spec: Spec) -> str:
    """The rows of the places: those that are named, or the first ones."""
    if op.has(8) and op.spec(8).shape == spec.shape[:-1]:
        return _taken(op, 8, 3, spec)
    op.require(not op.has(8), "its position ids are of another shape than its ids")
    table, count = op.spec(3), spec.shape[1]
    fits = table.dtype == spec.dtype and table.shape[1:] == spec.shape[2:]
    op.require(fits, f"input 3 is {table} for {spec}")
    op.require(count <= table.shape[0] or op.is_guess(0), f"{count} places, input 3 is {table}")
    if count > table.shape[0]:
        count = table.shape[0]  # a guess
    return op.viewed(op.input(3), (count, spec.shape[2]))


def _counted(op: Operation, ids: Spec) -> None:
    """How many entries each row's mask shows; zeros without a mask."""
    if not op.has(7):
        op.view(op.literal(np.zeros(ids.shape[0], np.int32)), (ids.shape[0],), 0, 1)
        return
    mask = op.spec(7)
    op.require(mask == Spec(ids.shape, mask.dtype), f"its mask is {mask} for {ids}")
    output = op.output(Spec(ids.shape[:1], mask.dtype), 1)
    op.step(standard("Fold", kind="sum"), [op.input(7)], [output])
