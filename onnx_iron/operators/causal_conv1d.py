"""CausalConv1d: a depth-wise causal filter with carried state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.dtypes import Array
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
from onnx_iron.operators.silu import silu, silu_body


@dataclass(frozen=True)
class CausalConv1d(Op):
    """Each channel through its own K taps, over the K - 1 rows before and the rows given.

    ``y[t] = sum_k taps[k] * x[t - (K - 1 - k) * dilation]`` in float32, taps in ascending order,
    then ``+ bias`` and the activation, one rounding. ``new_state`` is the last (K - 1) * dilation
    rows of ``concat(state, x[:rows])``, inputs all of them, also where rows are fewer. Any chunking
    of a sequence gives the same bits.
    """

    x = In()
    taps = In()
    state = In()
    bias = In(optional=True)
    rows = In(Kind.SCALAR, optional=True)
    activation: str = "none"
    dilation: int = 1
    built_in = ("activation", "dilation")
    outputs = ("y", "new_state")
    updates = (("state", "new_state"),)
    standard_opset = 27
    tolerance = Tolerance(
        2,
        1,
        "a float32 sum of K products; exp is approximated",
        of_magnitude=2**-22,
    )
    cases = (
        Case({"x": (8, 16), "taps": (3, 16), "state": (2, 16)}),
        Case({"x": (1, 40), "taps": (4, 40), "state": (3, 40)}),
        Case({"x": (8, 24), "taps": (4, 24), "state": (3, 24), "bias": (24,)}, {}, {"rows": 2}),
        Case({"x": (5, 24), "taps": (4, 24), "state": (3, 24)}, {"activation": "silu"}),
        Case(
            {"x": (2, 6, 8), "taps": (4, 8), "state": (2, 3, 8), "bias": (8,)},
            {"activation": "silu"},
            {"rows": 5},
        ),
        Case({"x": (4, 8), "taps": (8, 8), "state": (7, 8)}, {}, {"rows": 0}),
        Case({"x": (7, 8), "taps": (3, 8), "state": (6, 8)}, {"dilation": 3}, {"rows": 5}),
    )

    def __post_init__(self) -> None:
        if self.activation not in ("none", "silu"):
            raise ValueError(
                f"CausalConv1d.activation is {self.activation!r}; expected 'none' or 'silu'"
            )
        if self.dilation < 1:
            raise ValueError(f"CausalConv1d.dilation is {self.dilation}; it must be at least 1")

    def shape(
        self,
        x: Shape,
        taps: Shape,
        state: Shape,
        bias: Shape | None = None,
        rows: Shape | None = None,
    ) -> tuple[Shape, Shape]:
        if len(x) not in (2, 3):
            raise ValueError(f"CausalConv1d.x is {x}; it must be (T, C) or (B, T, C)")
        if len(taps) != 2 or taps[1] != x[-1] or taps[0] < 1:
            raise ValueError(f"CausalConv1d.taps is {taps}; x is {x}, so it must be (K, {x[-1]})")
        wanted = (*x[:-2], (taps[0] - 1) * self.dilation, x[-1])
        if state != wanted:
            raise ValueError(
                f"CausalConv1d.state is {state}; x is {x} and taps {taps}, so it must be {wanted}"
            )
        if bias is not None and bias != x[-1:]:
            raise ValueError(f"CausalConv1d.bias is {bias}; x is {x}, so it must be {x[-1:]}")
        return x, state

    def limits(
        self, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[Any]]
    ) -> Iterator[Limit]:
        T = shapes["x"][-2]  # noqa: N806
        for rows in values.get("rows", ()):
            yield Limit(rows, 0, T, "x", T, f"rows is {rows}, expected 0..{T} (x has {T} rows)")

    def flops(self, shapes: Mapping[str, Shape], output: Shape) -> int:
        return 2 * shapes["taps"][0] * math.prod(output)

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        return super().output_bounds(output, operands[:1], shape) if output == "y" else {}

    def reference(
        self,
        x: Array,
        taps: Array,
        state: Array,
        bias: Array | None = None,
        rows: int | None = None,
    ) -> tuple[Array, Array]:
        T, K = x.shape[-2], taps.shape[0]  # noqa: N806
        rows = T if rows is None else rows
        self.check_call({"x": x.shape}, {"rows": [rows]})
        window = np.concatenate([state, x], axis=-2)
        wide = widen(window)
        y = wide[..., :T, :] * widen(taps[0])
        for k in range(1, K):
            y = y + wide[..., k * self.dilation :, :][..., :T, :] * widen(taps[k])
        if bias is not None:
            y = y + widen(bias)
        if self.activation == "silu":
            y = silu(y.astype(np.float64))
        return narrow_like(y, x), window[..., rows : rows + (K - 1) * self.dilation, :].copy()

    def oracle(
        self,
        x: Array,
        taps: Array,
        state: Array,
        bias: Array | None = None,
        rows: int | None = None,
    ) -> tuple[Array, Array]:
        from scipy.special import expit

        window = np.concatenate([state, x], axis=-2)
        before = (len(taps) - 1) * self.dilation
        views = np.lib.stride_tricks.sliding_window_view(window, before + 1, axis=-2)
        y = np.einsum("...ck,kc->...c", views[..., :: self.dilation], taps)
        y = y if bias is None else y + bias
        if self.activation == "silu":
            y = y * expit(y)
        first = x.shape[-2] if rows is None else rows
        return y, window[..., first : first + before, :]

    def magnitude(
        self,
        x: Array,
        taps: Array,
        state: Array,
        bias: Array | None = None,
        rows: int | None = None,
    ) -> tuple[Array, Array]:
        positive = None if bias is None else np.abs(bias)
        plain = CausalConv1d(dilation=self.dilation)
        return plain.oracle(np.abs(x), np.abs(taps), np.abs(state), positive, rows)

    def body(
        self,
        g: Body,
        x: str,
        taps: str,
        state: str,
        bias: str | None = None,
        rows: str | None = None,
    ) -> tuple[str, str]:
        # Axes from the front: Slice takes no axis counted from the back on every runtime.
        axis, K = len(g.shape("x")) - 2, g.shape("taps")[0]  # noqa: N806
        T = g.vector(g.size(x, g.integer(axis)))  # noqa: N806
        window = g.op("Concat", state, x, axis=axis)
        wide, wide_taps = g.widen(window), g.widen(taps)
        y = ""
        for k in range(K):
            begin = g.ints(k * self.dilation)
            part = g.span(wide, begin, g.op("Add", T, begin), axis)
            product = g.op("Mul", part, g.span(wide_taps, g.ints(k), g.ints(k + 1), 0))
            y = g.op("Add", y, product) if y else product
        if bias is not None:
            y = g.op("Add", y, g.widen(bias))
        if self.activation == "silu":
            y = silu_body(g, y)
        first = g.vector(g.scalar(rows)) if rows is not None else T
        kept = g.ints((K - 1) * self.dilation)
        new_state = g.span(window, first, g.op("Add", first, kept), axis)
        return g.narrow_like(y, x), new_state

    def standard(
        self,
        g: Body,
        x: str,
        taps: str,
        state: str,
        bias: str | None = None,
        rows: str | None = None,
    ) -> tuple[str, str]:
        K = g.shape("taps")[0]  # noqa: N806
        # The standard operator carries at least one row, and knows no dilation.
        if K == 1 or self.dilation > 1:
            return self.body(g, x, taps, state, bias, rows)
        batched = len(g.shape("x")) == 3

        def channels_first(name: str) -> str:
            wide = g.widen(name)
            turned: str = g.op("Transpose", wide, perm=[0, 2, 1] if batched else [1, 0])
            return turned if batched else str(g.op("Unsqueeze", turned, g.ints(0)))

        def rows_first(name: str) -> str:
            flat = name if batched else g.op("Squeeze", name, g.ints(0))
            turned = g.op("Transpose", flat, perm=[0, 2, 1] if batched else [1, 0])
            return g.narrow_like(turned, x)

        filters = g.op("Unsqueeze", g.op("Transpose", g.widen(taps), perm=[1, 0]), g.ints(1))
        y, present = g.ops(
            "CausalConvWithState",
            channels_first(x),
            filters,
            "" if bias is None else g.widen(bias),
            channels_first(state),
            outputs=2,
            activation=self.activation,
        )
        if rows is None:
            return rows_first(y), rows_first(present)
        axis, first = len(g.shape("x")) - 2, g.vector(g.scalar(rows))
        window = g.op("Concat", state, x, axis=axis)
        return rows_first(y), g.span(window, first, g.op("Add", first, g.ints(K - 1)), axis)

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        x, taps = shapes[0], shapes[1]
        assert x is not None
        assert taps is not None
        return f"k{taps[0]}.{len(x)}d"

    @staticmethod
    def decompose(x: Any, taps: Any, state: Any) -> Any:
        """The same filter as copies, multiplies and adds, each rounded to the dtype: in float32
        the same bits.

        Args:
            x: handle (rows, channels), its rows bounded per call for a prompt chunk, one row for a
                decode step.
            taps: (K, channels).
            state: a ConvState.

        Returns:
            The handle of the filtered rows, bounded as x.
        """
        read, write, window, tail = state.read, state.write, state.window, state.tail
        T, K, chunk = x.shape[0], taps.shape[0], window.shape[1]  # noqa: N806
        rows = x.valid.get(0)
        # The first block ends with the rows before this call; the second begins with this call's.
        flat = window.reshape(2 * chunk, x.shape[1])
        first = chunk - (K - 1)
        if K > 1:
            flat[first:chunk] = read
        flat[chunk : chunk + T] = x
        y = flat[first : first + T] * taps[0]
        for k in range(1, K):
            y = y + flat[first + k : first + k + T] * taps[k]
        if K > 1 and rows is None:
            write[...] = flat[first + T : chunk + T]
        else:
            for j in range(K - 1):
                tail[j] = flat[first + rows + j]
            write[...] = tail
        return y if rows is None else y[:rows]
