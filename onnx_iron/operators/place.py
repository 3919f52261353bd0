"""Where a part of an axis begins at a call, and how many of its entries there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx_iron.operators.base import Limit


def place_limits(length: int, size: int, values: Mapping[str, Sequence[Any]]) -> Iterator[Limit]:
    """``rows`` of ``length`` entries (all, where not given) from ``start`` fit in ``size``."""
    start = values["start"][0]
    rows = next(iter(values.get("rows", ())), length)
    yield Limit(rows, 0, length, "x", size, f"rows is {rows}, expected 0..{length}")
    yield Limit(
        start,
        0,
        size - rows,
        "x",
        size,
        f"start is {start} and rows {rows}, expected 0 <= start <= {size - rows} (the axis has "
        f"{size} entries)",
    )


def place_values(start: int, rows: int | None) -> dict[str, Sequence[int]]:
    """The per-call values as ``check_call`` takes them."""
    return {"start": [start]} if rows is None else {"start": [start], "rows": [rows]}
