"""Products with a weight, and its rows by number."""

from __future__ import annotations

import math
from typing import Any

from onnx_iron.functional.operand import handle_of, tensor_of
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.leading import by_rows
from onnx_iron.graph.parts import State
from onnx_iron.operators.arithmetic import Add
from onnx_iron.operators.embedding import Embedding
from onnx_iron.operators.gemm import GEMM, Epilogue, Precision, ProjectionGEMM
from onnx_iron.operators.gemv import GEMV


def linear(
    x: Handle | State,
    weight: Any,
    bias: Any = None,
    *,
    precision: Precision = Precision.HIGHEST,
    **gemv: int,
) -> Handle:
    """Return ``x @ weight.T``, plus ``bias`` on every row if given.

    One row runs on GEMV, which always rounds once in float32 regardless of ``precision``; several
    rows run on ProjectionGEMM at ``precision``, or on GEMM at ``Precision.HIGHEST``. Every product
    is summed in float32 and rounded once, and a row has the same bits however many there are.

    Args:
        x: (in,), (rows, in), or with more axes in front, as (B, rows, in).
        weight: (out, in), as ``torch.nn.Linear`` stores it.
        bias: (out,).
        precision: how exact the product of several rows is at the least, the highest by default
            as torch's; the CPU's kernels give the same bits at each.
        gemv: GEMV's tunables, for one row; kept in the graph for a backend to read.

    Returns:
        x's leading axes and bounds, then (out,).

    Raises:
        ValueError: shapes that do not fit, or GEMV tunables for several rows.

    Example:
        >>> F.linear(x, w, b).shape
        (4, 8)
    """
    x = tensor_of("linear", "x", x)
    bias = None if bias is None else tensor_of("linear", "bias", bias)
    if not x.shape:
        raise ValueError("linear(): x is (), a number; expected (..., in)")
    if precision not in list(Precision):
        raise ValueError(
            f"linear(): precision is {precision!r}; expected one of {[str(p) for p in Precision]}"
        )
    if len(x.shape) > 2:
        every: Handle = by_rows(
            "linear()",
            handle_of("linear", "x", x),
            lambda rows: linear(rows, weight, bias, precision=precision, **gemv),
        )
        return every
    if len(x.shape) == 1 or x.shape[0] == 1:
        y = GEMV.step(weight, x, **gemv)
    elif gemv:
        raise ValueError(f"linear(): {x.shape[0]} rows take no GEMV {sorted(gemv)}")
    elif precision == Precision.HIGHEST:
        y = GEMM.step(x, weight, b_col_maj=True, precision=precision)
    else:
        y = ProjectionGEMM.step(
            x, weight, b_col_maj=True, epilogue_modes=(Epilogue.NONE,), precision=precision
        )
    if bias is None:
        return y
    if tuple(bias.shape) != y.shape[-1:]:
        raise ValueError(
            f"linear(): bias is {tuple(bias.shape)}; weight is {tuple(weight.shape)}, so it must "
            f"be {y.shape[-1:]}"
        )
    # A row added to every row, also for GEMV's one-dimensional output.
    rows = math.prod(y.shape) // bias.shape[0]
    return Add.step(y.reshape(rows, bias.shape[0]), bias).reshape(y.shape)


def embedding(input: Any, weight: Any) -> Handle:  # torch's name for the ids
    """For each id of ``input`` (int32 or int64, any shape) its row of ``weight``
    ``(entries, width)``; the ids' shape, then width. An id outside is an error at the call.

    Example:
        >>> ids = np.array([0, 2, 2], np.int32)
        >>> F.embedding(ids, w).shape
        (3, 8)
    """
    return Embedding.step(weight, input)
