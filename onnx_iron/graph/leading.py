"""Leading axes, and how far they are valid: rows of matrices on tensors of any number of axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnx_iron.graph.value import Value


def by_rows(what: str, x: Any, compute: Callable[[Any], Any]) -> Any:
    """``compute`` of a handle's rows (n, last), padding and all, its result with the leading axes
    of ``x`` and their bounds. ``what`` is computed, an error says.

    Raises:
        ValueError: the last axis is bounded, which a product sums over.
    """
    if x.ndim - 1 in x.valid:
        raise ValueError(
            f"{what}: {x.name} is bounded by {x.valid[x.ndim - 1]} along its last axis, which is "
            "summed over, padding and all"
        )
    y = compute(x.unbounded().reshape(-1, x.shape[-1]))
    return bounded(y.reshape(*x.shape[:-1], *y.shape[1:]), x.valid)


def bounded(x: Any, valid: Mapping[int, Value]) -> Any:
    """A handle of which only so many entries are valid, by axis."""
    for axis, rows in valid.items():
        x = x[(*[slice(None)] * axis, slice(rows))]
    return x


def bounds_of(handle: Any) -> Iterator[tuple[Any, int, Value]]:
    """A handle's bounds and those of what it is a part of: which one, the axis and the value."""
    for part in handle.lineage():
        yield from ((part, axis, rows) for axis, rows in part.valid.items())
