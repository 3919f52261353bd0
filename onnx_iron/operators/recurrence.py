"""Recurrences over rows: what the operators share that carry a state from row to row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.operators.base import Limit
from onnx_iron.operators.body import Body


def rows_limit(name: str, count: int, values: Mapping[str, Sequence[Any]]) -> Iterator[Limit]:
    """How many of an input's rows may count."""
    for rows in values.get("rows", ()):
        text = f"rows is {rows}, expected 0..{count} ({name} has {count} rows)"
        yield Limit(rows, 0, count, name, count, text)


def float32_range(array: Array) -> Array:
    """Numbers beyond the largest float32 as the infinities that they are there."""
    with np.errstate(over="ignore"):
        beyond = np.isinf(array.astype(np.float32))
    return np.where(beyond, np.copysign(np.inf, array), array)


def rows_first(g: Body, name: str, rank: int, *, batched: bool) -> str:
    """An operand in float32 with its rows before its batches, or back: it is its own inverse."""
    wide = g.widen(name)
    if not batched:
        return wide
    turned: str = g.op("Transpose", wide, perm=[1, 0, *range(2, rank)])
    return turned


def valid_rows(g: Body, turned: str, rows: str | None) -> str:
    """For each row of ``turned``, its first axis, whether it counts."""
    count = g.size(turned, g.integer(0))
    numbers = g.op("Range", g.integer(0), count, g.integer(1))
    return g.op("Less", numbers, count if rows is None else g.scalar(rows))
