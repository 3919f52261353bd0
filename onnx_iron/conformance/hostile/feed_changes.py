"""Changes of what a call gives: shapes, dtypes, strides, numbers, names."""

from __future__ import annotations

import numpy as np

from onnx_iron.conformance.hostile.change import REALS, Random, change, one
from onnx_iron.conformance.hostile.originals import STRIDES, Draft, feeds_for
from onnx_iron.dtypes import BFLOAT16, BOOL, FLOAT32, INT32, INT64, DType

_DTYPES: tuple[DType, ...] = (
    *(FLOAT32, BFLOAT16, INT32, INT64, BOOL),
    *(np.dtype(np.float64), np.dtype(np.float16), np.dtype(np.int8), np.dtype(np.uint64)),
)
# Ids, places and counts that are none.
_NUMBERS = (-1, -2, 1, 3, 5, 6, 7, 15, 16, 17, 23, 24, 25, 1 << 20, (1 << 31) - 1, -(1 << 31))


def _one_feed(rng: Random, draft: Draft) -> str | None:
    return one(rng, sorted(draft.feeds)) if draft.feeds else None


@change
def a_tensors_shape(rng: Random, draft: Draft) -> str | None:
    """A tensor of another shape: more or fewer of something, none of it, another rank."""
    name = _one_feed(rng, draft)
    if name is None:
        return None
    old = draft.feeds[name]
    how = one(rng, ("neighbour", "zero", "rank", "flat", "scalar", "transposed", "longer"))
    shape = list(old.shape)
    if how == "rank" or not shape:
        shape.insert(0, one(rng, (1, 2, 0)))
    elif how in ("neighbour", "zero", "longer"):
        place = int(rng.integers(len(shape)))
        near = one(rng, (max(shape[place] - 1, 0), shape[place] + 1))
        shape[place] = {"neighbour": near, "zero": 0, "longer": shape[place] * 9}[how]
    elif how == "flat":
        shape = [old.size]
    elif how == "scalar":
        shape = []
    else:
        shape.reverse()
    draft.feeds[name] = np.resize(old, shape) if old.size else np.zeros(shape, old.dtype)
    return f"{name[:30]!r} is given as {draft.feeds[name].shape}, declared {old.shape}"


@change
def a_tensors_dtype(rng: Random, draft: Draft) -> str | None:
    """A tensor of another dtype."""
    name = _one_feed(rng, draft)
    if name is None:
        return None
    with np.errstate(all="ignore"):
        draft.feeds[name] = draft.feeds[name].astype(one(rng, _DTYPES))
    return f"{name[:30]!r} is given as {draft.feeds[name].dtype.name}"


@change
def a_tensors_strides(rng: Random, draft: Draft) -> str | None:
    """The same numbers, every other element of a larger array, backwards, or column by column."""
    name = _one_feed(rng, draft)
    if name is None:
        return None
    draft.strides[name] = one(rng, STRIDES)
    return f"{name[:30]!r} is given with {draft.strides[name]}"


@change
def a_tensors_numbers(rng: Random, draft: Draft) -> str | None:
    """Numbers that are no ids, places or counts; NaN, infinities and huge ones."""
    name = _one_feed(rng, draft)
    if name is None:
        return None
    array = draft.feeds[name].copy()
    if not array.size:
        return None
    place = int(rng.integers(array.size))
    if array.dtype.kind in "iu":
        made: int | float = one(rng, _NUMBERS)
        made = int(np.clip(made, np.iinfo(array.dtype).min, np.iinfo(array.dtype).max))
    else:
        made = one(rng, REALS)
    with np.errstate(all="ignore"):
        array.reshape(-1)[place : None if rng.random() < 0.3 else place + 1] = made
    draft.feeds[name] = array
    return f"{name[:30]!r} holds {made}"


@change
def which_tensors(rng: Random, draft: Draft) -> str | None:
    """An input that is not given, or one that nobody asked for."""
    name = _one_feed(rng, draft)
    if name is None or rng.random() < 0.3:
        draft.feeds["unasked"] = np.zeros(3, np.float32)
        return "an input nobody asked for"
    del draft.feeds[name]
    return f"{name[:30]!r} is not given"


@change
def tensors_as_declared(rng: Random, draft: Draft) -> str | None:
    """What the model as it is now asks for."""
    draft.feeds = feeds_for(draft.model, int(rng.integers(1 << 16)))
    return "what is declared is given"
