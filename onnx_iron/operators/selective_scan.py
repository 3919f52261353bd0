"""SelectiveScan: a state for each channel that decays and takes in rows by their own steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_iron.dtypes import BOOL, FLOAT32, Array
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import (
    Case,
    In,
    Kind,
    Limit,
    Op,
    Shape,
    Tolerance,
    narrow_like,
    widen,
)
from onnx_iron.operators.body import Body
from onnx_iron.operators.recurrence import float32_range, rows_first, rows_limit, valid_rows


@dataclass(frozen=True)
class SelectiveScan(Op):
    """Mamba's selective scan (Gu and Dao, arXiv 2312.00752), row by row over a float32 state.

    ``h = exp(step * a) * h + (step * x) * b``, then ``y = h @ c + d * x``, for each channel: x and
    dt (T, C) or (B, T, C); a (C, N); b and c (T, N) or (B, T, N); state (C, N) or (B, C, N); d and
    dt_bias (C). ``step`` is ``dt + dt_bias``, through softplus where ``dt_softplus``. Only the
    first ``rows`` rows count: the others leave the state, and are 0 in y. Any chunking of a
    sequence gives the same bits.
    """

    x = In()
    dt = In()
    a = In(Kind.FLOAT32)
    b = In()
    c = In()
    state = In(Kind.FLOAT32)
    d = In(Kind.FLOAT32, optional=True)
    dt_bias = In(Kind.FLOAT32, optional=True)
    rows = In(Kind.SCALAR, optional=True)
    dt_softplus: bool = False
    built_in = ("dt_softplus",)
    outputs = ("y", "new_state")
    results: ClassVar = {"new_state": FLOAT32}
    updates = (("state", "new_state"),)
    tolerance = Tolerance(
        4,
        1,
        "each row rounds the exponent, the decay and the state, which the rows after it carry on",
        of_magnitude=2**-21,
    )
    cases = (
        Case(
            {
                **{"x": (8, 24), "dt": (8, 24), "a": (24, 16), "b": (8, 16), "c": (8, 16)},
                **{"state": (24, 16), "d": (24,), "dt_bias": (24,)},
            },
            {"dt_softplus": True},
            {"rows": 5},
        ),
        Case(
            {
                **{"x": (1, 37), "dt": (1, 37), "a": (37, 5), "b": (1, 5), "c": (1, 5)},
                "state": (37, 5),
            }
        ),
        Case(
            {
                **{"x": (2, 6, 8), "dt": (2, 6, 8), "a": (8, 4), "b": (2, 6, 4), "c": (2, 6, 4)},
                **{"state": (2, 8, 4), "d": (8,)},
            },
            {"dt_softplus": True},
            {"rows": 3},
        ),
    )

    def shape(
        self,
        x: Shape,
        dt: Shape,
        a: Shape,
        b: Shape,
        c: Shape,
        state: Shape,
        d: Shape | None = None,
        dt_bias: Shape | None = None,
        rows: Shape | None = None,
    ) -> tuple[Shape, Shape]:
        if len(x) not in (2, 3):
            raise ValueError(f"SelectiveScan.x is {x}; it must be (T, C) or (B, T, C)")
        if len(a) != 2 or a[0] != x[-1]:
            raise ValueError(f"SelectiveScan.a is {a}; x is {x}, so it must be ({x[-1]}, N)")
        per_row, per_channel = (*x[:-1], a[1]), x[-1:]
        expected = {
            "dt": (dt, x),
            "b": (b, per_row),
            "c": (c, per_row),
            "state": (state, (*x[:-2], *a)),
            "d": (d, per_channel),
            "dt_bias": (dt_bias, per_channel),
        }
        for name, (given, wanted) in expected.items():
            if given is not None and given != wanted:
                raise ValueError(
                    f"SelectiveScan.{name} is {given}; x is {x} and a {a}, so it must be {wanted}"
                )
        return x, state

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        return rows_limit("x", shapes["x"][-2], values)

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        return 16 * math.prod(output) * shapes["a"][1]

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        if output != "y":
            return {}
        x, dt, _, b, c = operands[:5]
        return super().output_bounds(output, (x, dt, b, c), shape)

    def reference(
        self,
        x: Array,
        dt: Array,
        a: Array,
        b: Array,
        c: Array,
        state: Array,
        d: Array | None = None,
        dt_bias: Array | None = None,
        rows: int | None = None,
    ) -> tuple[Array, Array]:
        count = x.shape[-2] if rows is None else rows
        self.check_call({"x": x.shape}, {"rows": [count]})
        step, wide = widen(dt), widen(x)
        if dt_bias is not None:
            step = step + dt_bias
        if self.dt_softplus:
            step = np.logaddexp(step.astype(np.float64), 0).astype(np.float32)
        taken = step * wide
        h, y = state, np.zeros(x.shape, np.float32)
        for t in range(count):
            decay = np.exp((step[..., t, :, None] * a).astype(np.float64)).astype(np.float32)
            h = decay * h + taken[..., t, :, None] * widen(b)[..., t, None, :]
            y[..., t, :] = (h * widen(c)[..., t, None, :]).sum(-1)
            if d is not None:
                y[..., t, :] += d * wide[..., t, :]
        return narrow_like(y, x), h.copy()

    def oracle(self, *operands: Any) -> tuple[Array, Array]:
        return self._in_float64(operands, signed=True)

    def magnitude(self, *operands: Any) -> tuple[Array, Array]:
        return self._in_float64(operands, signed=False)

    def _in_float64(self, operands: Sequence[Any], *, signed: bool) -> tuple[Array, Array]:
        """The scan; unsigned the sum of all magnitudes, a decay's error growing with its exponent.

        What a row computes is in float32's range, or infinite, as the state that is carried is.
        """
        from scipy.special import log1p

        given: list[Any] = [*operands, *[None] * (9 - len(operands))]
        x, dt, a, b, c, state, d, dt_bias, rows = given
        step = dt if dt_bias is None else dt + dt_bias
        if self.dt_softplus:
            step = np.maximum(step, 0) + log1p(np.exp(-np.abs(step)))
        part, kept = (np.asarray, float32_range) if signed else (np.abs, np.asarray)
        y, h = np.zeros(x.shape), part(state)
        for t in range(x.shape[-2] if rows is None else rows):
            exponent = np.einsum("...c,cn->...cn", step[..., t, :], a)
            decay = kept(np.exp(exponent))
            if not signed:
                decay = decay * (1 + np.minimum(np.abs(exponent), 2.0**10))  # of 0 it is 0
            taken = kept(step[..., t, :] * x[..., t, :])
            added = np.einsum("...c,...n->...cn", part(taken), part(b[..., t, :]))
            h = kept(kept(decay * h) + kept(added))
            y[..., t, :] = kept(h * part(c[..., t, None, :])).sum(-1)
            if d is not None:
                y[..., t, :] += part(d * x[..., t, :])
        return y, h

    def body(
        self,
        g: Body,
        x: str,
        dt: str,
        a: str,
        b: str,
        c: str,
        state: str,
        d: str | None = None,
        dt_bias: str | None = None,
        rows: str | None = None,
    ) -> tuple[str, str]:
        rank = len(g.shape("x"))

        def turned(name: str) -> str:
            return rows_first(g, name, rank, batched=rank == 3)

        wide, step = turned(x), turned(dt)
        if dt_bias is not None:
            step = g.op("Add", step, dt_bias)
        if self.dt_softplus:
            step = g.op("Softplus", step)
        last, before_last = g.ints(-1), g.ints(-2)
        decay = g.op("Exp", g.op("Mul", g.op("Unsqueeze", step, last), a))
        taken = g.op("Unsqueeze", g.op("Mul", step, wide), last)
        added = g.op("Mul", taken, g.op("Unsqueeze", turned(b), before_last))
        column = g.op("Unsqueeze", turned(c), last)
        valid = valid_rows(g, wide, rows)

        def turn(
            inner: Body, carried: list[str], entries: list[str]
        ) -> tuple[list[str], list[str]]:
            (h,), (kept, factor, more, weights) = carried, entries
            following = inner.op("Add", inner.op("Mul", factor, h), more)
            following = inner.op("Where", kept, following, h)
            return [following], [inner.op("MatMul", following, weights)]

        per_row = dict.fromkeys((decay, added, column), FLOAT32)
        (new_state,), (y,) = g.scan([state], {valid: BOOL, **per_row}, turn)
        y = g.op("Squeeze", y, last)
        if d is not None:
            y = g.op("Add", y, g.op("Mul", d, wide))
        if rows is not None:
            shape = g.ints(-1, *[1] * (rank - 1))
            y = g.op("Where", g.op("Reshape", valid, shape), y, g.real(0.0))
        return g.narrow_like(turned(y), x), new_state

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        x = shapes[0]
        assert x is not None
        return f"{len(x)}d"
