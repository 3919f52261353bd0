"""Cast: a tensor in another dtype."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import DTYPES, FLOATS, Array, DType
from onnx_iron.operators.base import In, Kind, Op
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class Cast(Op):
    """``x`` in the dtype of that ``TensorProto.DataType``: floats rounded to the nearest even, to
    integers towards 0; anything but 0 is True.
    """

    x = In(Kind.ANY)
    to: int = 1
    domain = ""
    elementwise = True
    moves = True

    def result_dtype(self, output: str, dtype: DType | None) -> DType:
        return DTYPES[self.to]

    def reference(self, x: Array) -> Array:
        wide = x.astype(np.float32) if x.dtype in FLOATS else x
        return wide.astype(DTYPES[self.to])

    def oracle(self, x: Array) -> Array:
        return x.astype(DTYPES[self.to]) if DTYPES[self.to] not in FLOATS else x.astype(np.float64)

    def body(self, g: Body, x: str) -> str:
        return g.op("Cast", x, to=self.to)
