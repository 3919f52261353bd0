"""RoPE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.graph.handle import Handle
from onnx_iron.graph.operand import Operand
from onnx_iron.graph.value import Value
from onnx_iron.operators.base import Case, In, Kind, Op, Shape, Tolerance, narrow_like, widen
from onnx_iron.operators.body import Body


@dataclass(frozen=True)
class RoPE(Op):
    """Each row of ``x`` turned by its row of angles; rows / angle_rows consecutive rows share one.
    The sequences of a batch share all angles, or each has its own.

    An angle row is ``(cos0, sin0, cos1, sin1, ...)``. Frequency i turns the elements i and
    i + head_dim / 2, or the pair 2i and 2i + 1 where ``interleaved``. Su et al., arXiv 2104.09864.
    """

    stem = "rope"
    x = In()
    angles = In(Kind.T_OR_FLOAT32)
    interleaved: bool = False
    built_in = ("interleaved",)
    flops_each = 4
    standard_opset = 23
    tolerance = Tolerance(
        0, 1, "two products and a sum, each rounded to float32", of_magnitude=2**-22
    )
    cases = (
        Case({"x": (4, 64), "angles": (4, 64)}),
        Case({"x": (12, 32), "angles": (4, 32)}),
        Case({"x": (12, 32), "angles": (4, 32)}, {"interleaved": True}),
        Case({"x": (3, 6), "angles": (1, 6)}),
        Case({"x": (2, 12, 32), "angles": (4, 32)}),
        Case({"x": (3, 8, 6), "angles": (3, 4, 6)}, {"interleaved": True}),
    )

    def shape(self, x: Shape, angles: Shape) -> Shape:
        if len(x) not in (2, 3) or x[-1] % 2:
            raise ValueError(
                f"RoPE.x is {x}; it must be (rows, head_dim) or (B, rows, head_dim), head_dim even"
            )
        rows, width = x[-2:]
        fits = len(angles) >= 2 and angles[-1] == width and angles[-2] and rows % angles[-2] == 0
        if not fits or angles[:-2] not in ((), x[:-2]):
            own = f" or ({x[0]}, n, {width})" if len(x) == 3 else ""
            raise ValueError(
                f"RoPE.angles is {angles}; x is {x}, so it must be (n, {width}){own} with n "
                f"dividing {rows}"
            )
        return x

    def output_bounds(
        self, output: str, operands: Sequence[Operand], shape: Shape
    ) -> dict[int, Value]:
        x = operands[0]
        return dict(x.valid) if isinstance(x, Handle) else {}

    def reference(self, x: Array, angles: Array) -> Array:
        turned = np.repeat(widen(angles), x.shape[-2] // angles.shape[-2], axis=-2)
        cos, sin = turned[..., 0::2], turned[..., 1::2]
        wide, half = widen(x), x.shape[-1] // 2
        y = np.empty_like(wide)
        one, two = (
            (np.s_[..., 0::2], np.s_[..., 1::2])
            if self.interleaved
            else (np.s_[..., :half], np.s_[..., half:])
        )
        y[one] = wide[one] * cos - wide[two] * sin
        y[two] = wide[two] * cos + wide[one] * sin
        return narrow_like(y, x)

    def oracle(self, x: Array, angles: Array) -> Array:
        turned = np.repeat(angles, x.shape[-2] // angles.shape[-2], axis=-2)
        turn, half = _complex(turned[..., 0::2], turned[..., 1::2]), x.shape[-1] // 2
        if self.interleaved:
            y = _complex(x[..., 0::2], x[..., 1::2]) * turn
            return np.stack([y.real, y.imag], -1).reshape(x.shape)
        y = _complex(x[..., :half], x[..., half:]) * turn
        return np.concatenate([y.real, y.imag], -1)

    def magnitude(self, x: Array, angles: Array) -> Array:
        turned = np.abs(np.repeat(angles, x.shape[-2] // angles.shape[-2], axis=-2))
        largest, half = np.maximum(turned[..., 0::2], turned[..., 1::2]), x.shape[-1] // 2
        if self.interleaved:
            both = np.abs(x[..., 0::2]) + np.abs(x[..., 1::2])
            return np.repeat(both * largest, 2, axis=-1)
        both = np.abs(x[..., :half]) + np.abs(x[..., half:])
        return np.concatenate([both * largest] * 2, -1)

    def body(self, g: Body, x: str, angles: str) -> str:
        # Beside a row of angles the rows that it turns, and the two elements of a pair; a 0 keeps a
        # dimension.
        half, own = g.shape("x")[-1] // 2, len(g.shape("angles")) - 2
        rows = g.size(angles, g.integer(own))
        pairs = g.op("Reshape", g.widen(angles), g.ints(*[0] * own, 0, 1, half, 2))
        cos, sin = (g.op("Gather", pairs, g.integer(i), axis=-1) for i in (0, 1))
        split = (half, 2) if self.interleaved else (2, half)
        axis = -1 if self.interleaved else -2
        batch = [g.ints(0)] if len(g.shape("x")) == 3 else []
        shape = g.op("Concat", *batch, g.vector(rows), g.ints(-1, *split), axis=0)
        wide = g.op("Reshape", g.widen(x), shape)
        one, two = (g.op("Gather", wide, g.integer(i), axis=axis) for i in (0, 1))
        first = g.op("Sub", g.op("Mul", one, cos), g.op("Mul", two, sin))
        second = g.op("Add", g.op("Mul", two, cos), g.op("Mul", one, sin))
        joined = g.op(
            "Concat",
            g.op("Unsqueeze", first, g.ints(axis)),
            g.op("Unsqueeze", second, g.ints(axis)),
            axis=axis,
        )
        return g.narrow_like(g.op("Reshape", joined, g.op("Shape", x)), x)

    def standard(self, g: Body, x: str, angles: str) -> str:
        *batch, rows, width = g.shape("x")
        *own, positions, _ = g.shape("angles")
        sequences = batch[0] if batch else 1
        pairs = g.op("Reshape", g.widen(angles), g.ints(-1, positions, width // 2, 2))
        if sequences > 1 and not own:
            pairs = g.op("Expand", pairs, g.ints(sequences, positions, width // 2, 2))
        cos, sin = (g.op("Gather", pairs, g.integer(i), axis=-1) for i in (0, 1))
        heads = rows // positions  # the consecutive rows that share an angle row
        tokens = g.op("Reshape", g.widen(x), g.ints(sequences, positions, heads * width))
        y = g.op(
            "RotaryEmbedding",
            tokens,
            cos,
            sin,
            num_heads=heads,
            interleaved=int(self.interleaved),
        )
        return g.narrow_like(g.op("Reshape", y, g.ints(*batch, rows, width)), x)

    def shape_variant(self, shapes: Sequence[Shape | None]) -> str:
        x, angles = shapes
        assert x is not None
        assert angles is not None
        batch = "" if len(x) == 2 else ".batch" if len(angles) == 2 else ".batches"
        return f"d{x[-1]}{batch}"


def _complex(real: Array, imaginary: Array) -> Array:
    """Complex numbers; ``1j * inf`` would have NaN for its real part."""
    made = np.empty(real.shape, np.complex128)
    made.real, made.imag = real, imaginary
    return made
