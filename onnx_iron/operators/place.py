"""Where a part of an axis begins at a call, and how many of its entries there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def check_place(length: int, size: int, values: Mapping[str, Sequence[int]]) -> None:
    """``rows`` of ``length`` entries (all, where not given) from ``start`` fit in ``size``.

    Raises:
        ValueError: they do not.
    """
    start = values["start"][0]
    rows = next(iter(values.get("rows", ())), length)
    if not 0 <= rows <= length:
        raise ValueError(f"rows is {rows}, expected 0..{length}")
    if not 0 <= start <= size - rows:
        raise ValueError(
            f"start is {start} and rows {rows}, expected 0 <= start <= {size - rows} (the axis has "
            f"{size} entries)"
        )


def place_values(start: int, rows: int | None) -> dict[str, Sequence[int]]:
    """The per-call values as ``check_call`` takes them."""
    return {"start": [start]} if rows is None else {"start": [start], "rows": [rows]}
