"""A decoder over the rows of a call, of all its sequences, without a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnx_iron import functional as F
from onnx_iron.dtypes import INT64
from onnx_iron.graph import Handle, State, Value
from onnx_iron.graph.trace import Trace
from onnx_iron.models.blocks import Call
from onnx_iron.models.decoder import Decoder

# How many rows a call has, and how many of them have logits, is open: each stands for any number,
# and is a prime that no size of a model has as a factor.
ROWS, LASTS = 1_000_003, 1_000_033
IDS, PLACES, LAST, LOGITS = "ids", "places", "last", "logits"


@dataclass(frozen=True)
class RowsCall(Call):
    """A call whose cache is the driver's: attention is given the new rows alone."""

    def kept(self, new: Handle, cache: State) -> Any:
        return new

    @property
    def place(self) -> Mapping[str, Any]:
        return {}


def rows_trace(decoder: Decoder, logits: str) -> Trace:
    """Trace a decoder for ROWS rows.

    Inputs are ``ids`` (ROWS,), ``places`` (ROWS,), the position of each in its sequence, and where
    ``logits`` is "last", ``last`` (LASTS,), the rows that have logits. Output ``logits`` is
    (LASTS or ROWS, vocabulary).
    """

    def through(ids: Handle, places: Handle) -> Handle:
        angles = {kind: F.embedding(places, table) for kind, table in decoder.rope.items()}
        return decoder.through(ids, RowsCall(ROWS, Value({}, 0), angles))

    def of_all(ids: Handle, places: Handle) -> dict[str, Handle]:
        return {LOGITS: decoder.logits(decoder.normed(through(ids, places)))}

    def of_last(ids: Handle, places: Handle, last: Handle) -> dict[str, Handle]:
        h = F.embedding(last, through(ids, places))
        return {LOGITS: decoder.logits(decoder.normed(h))}

    given = {IDS: ((ROWS,), INT64), PLACES: ((ROWS,), INT64)}
    if logits == "all":
        return decoder.trace(of_all, **given)
    return decoder.trace(of_last, **given, **{LAST: ((LASTS,), INT64)})
