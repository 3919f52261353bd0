"""Random graphs of batches: B sequences at once must give the bits of each by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hypothesis import strategies as st

from onnx_iron.conformance.drawing import Draw, Drawing, drawn_operators, spelled
from onnx_iron.conformance.programs import Program
from onnx_iron.conformance.sketch import Refused, Sketch
from onnx_iron.dtypes import Shape

# No other size is the batch's, so that a body that mixes its axes up does not trace.
SEQUENCES, CHUNK, WIDTHS, CACHE = 3, 5, (2, 4, 8), 12
OPERATORS = [op for op in drawn_operators() if op.elementwise and len(op.inputs) <= 2]

# What a tensor (BATCH, rows, width) may become; none of it names the number of sequences.
WHOLE = (
    "{x}[:, {row}]",
    "{x}[:, {row}:, :]",
    "{x}[:, ::2].copy()",
    "{x}.transpose(1, 2).copy()",
    "F.cat([{x}, {x} * 0.5], 1)",
    "F.cumsum({x}, 1)",
    "F.max({x}, 1).values",
    "F.mean({x}, 1, keepdim=True)",
    "F.one_hot(F.argmax({x}, 1), 4).to(DTYPE)",
    "F.pad({x}, (0, 0, 1, 2))",
    "F.softmax({x}, 1)",
    "F.sum({x}, (1, 2))",
    "F.topk({x}, 2, 1).values",
    "F.causal_conv1d({x}, {taps}, dilation=2)",
)
BY_ROW = (
    "{x}[..., {column}:]",
    "{x} @ {square}",
    "F.amax({x}, -1, keepdim=True)",
    "F.cat([{x}, F.relu({x})], -1)",
    "F.embedding(F.argmax({x}, -1), {square})",
    "F.layer_norm({x}, {x}.shape[-1], {vector}, {vector})",
    "F.linear({x}, {square}, {vector}, precision=F.Precision.{precision})",
    "F.masked_fill({x}, {x} > 0.5, -1.0)",
    "F.pad({x}, (1, 0))",
    "F.rms_norm({x}, {x}.shape[-1], {vector})",
    "F.selective_scan({x}, {x} * 0.5, {rates}, {x}[..., :2], {x}[..., -2:], dt_softplus=True)",
    "F.softmax({x}, -1)",
    "F.sum({x}, -1, keepdim=True)",
    "F.swiglu({x})",
    "F.where({x} > 0, {x}, {vector})",
    "{x}.reshape(-1, {x}.shape[1], 2, {x}.shape[2] // 2).transpose(2, 3).flatten(2)",
)


@st.composite
def batches(draw: Draw, depth: int = 12) -> Program:
    """A body over a batch of sequences (B, rows, width), with states for each of them."""
    width, taps = draw(st.sampled_from(WIDTHS)), draw(st.integers(2, 4))
    heads = draw(st.sampled_from((1, 2)))
    cache = f"state((BATCH, {CACHE}, {heads}, {width // heads}), DTYPE)"
    rows = draw(st.sampled_from((CHUNK, 1)))
    sketch = Sketch(
        dtype=draw(st.sampled_from(("float32", "bfloat16"))),
        inputs={"x0": (SEQUENCES, rows, width), "x1": (SEQUENCES, rows, width)},
        states={
            "conv": f"F.conv_state({taps}, {width}, {CHUNK}, DTYPE, batch=BATCH)",
            "keys": cache,
            "values": cache,
        },
        values={"position": CACHE - CHUNK, "rows": rows},
        batch=SEQUENCES,
    )
    drawn = _Batch(draw, sketch, taps, heads)
    sketch.tensors[:] = ["x0", "x1"]
    bounded = rows > 1 and draw(st.booleans())
    if bounded:
        for name in sketch.inputs:
            sketch.keep(f"{name} = {name}[:, :rows]")
    idioms = [drawn.convolution, drawn.attention]
    kinds = [drawn.operator, drawn.rows, drawn.rows, drawn.turned]
    kinds += [] if bounded else [drawn.whole]
    for _ in range(draw(st.integers(1, depth))):
        statement = draw(st.sampled_from((*kinds, *idioms)))
        if statement in idioms:
            idioms.remove(statement)  # each has one state
        with contextlib.suppress(Refused):
            statement()
    results = [name for name in sketch.results() if sketch.shape(name)[:1] == (SEQUENCES,)]
    if not results:
        sketch.keep("h = x0 + x1", "h")
        results = ["h"]
    more = draw(st.lists(st.sampled_from(results), max_size=2))
    calls = [
        {"position": draw(st.integers(0, CACHE - CHUNK)), "rows": draw(st.integers(0, rows))}
        for _ in range(draw(st.integers(1, 3)))
    ]
    return sketch.program(list(dict.fromkeys([results[0], *more])), calls, "normal")


class _Batch(Drawing):
    """Draws statements that keep sequences apart."""

    def __init__(self, draw: Draw, sketch: Sketch, taps: int, heads: int) -> None:
        super().__init__(draw, sketch)
        self._taps, self._heads = taps, heads

    def operator(self) -> None:
        """A step of an elementwise operator, of tensors of one shape or of one and a row."""
        op, first = self._of(OPERATORS), self._of(self._tensors())
        shape = self._sketch.shape(first)
        alike = [t for t in self._tensors() if self._sketch.shape(t) == shape]
        others = [*alike, self._weight(shape[-1:]), "0.5"]
        operands = {
            made.name: first if number == 0 else self._of(others)
            for number, made in enumerate(op.inputs)
        }
        self._keep(spelled(op, operands, {}))

    def rows(self) -> None:
        """What computes each row from that row alone."""
        self._keep(self._filled(self._of(BY_ROW)))

    def whole(self) -> None:
        """What needs all rows of a sequence."""
        self._keep(self._filled(self._of(WHOLE)))

    def turned(self) -> None:
        """Heads turned by angles that the sequences share, or by those of each."""
        first, shape = self._of_three_axes()
        heads = f"{first}.reshape(-1, {shape[1]}, {self._heads}, {shape[2] // self._heads})"
        angles = self._weight((shape[1], shape[2] // self._heads))
        pairs = self._of((True, False))
        self._keep(f"F.rope({heads}, {angles}, interleaved={pairs}).reshape(*{first}.shape)")

    def convolution(self) -> None:
        """A causal filter with the rows before of each sequence."""
        width = self._sketch.shape("x0")[2]
        first = self._of(self._alike())
        taps, bias = self._weight((self._taps, width)), self._weight((width,))
        activation = self._of((None, "silu"))
        self._keep(
            f"F.causal_conv1d({first}, {taps}, self.conv, bias={bias}, activation={activation!r})"
        )

    def attention(self) -> None:
        """Rows written to caches at one position, and attention to those so far."""
        rows, width = self._sketch.shape("x0")[1:]
        query, key, value = (self._of(self._alike()) for _ in range(3))
        split = f"reshape(-1, {rows}, {self._heads}, {width // self._heads})"
        for cache, given in (("keys", key), ("values", value)):
            self._sketch.keep(f"self.{cache}[:, position : position + {rows}] = {given}.{split}")
        window = self._of((None, 3))
        self._keep(
            f"F.scaled_dot_product_attention({query}.{split}, self.keys, self.values, "
            f"position=position, is_causal=True, window={window}, layout='rows_first')"
            f".reshape(-1, {rows}, {width})"
        )

    def _alike(self) -> list[str]:
        shape = self._sketch.shape("x0")
        return [t for t in self._tensors() if self._sketch.shape(t) == shape]

    def _of_three_axes(self) -> tuple[str, Shape]:
        found = [(t, self._sketch.shape(t)) for t in self._tensors()]
        chosen: tuple[str, Shape] = self._of([(t, s) for t, s in found if len(s) == 3])
        return chosen

    def _filled(self, template: str) -> str:
        first, (_, rows, width) = self._of_three_axes()
        made = dict(self._weights(template, width))
        return template.format(
            x=first,
            row=self._draw(st.integers(0, rows - 1)),
            column=self._draw(st.integers(0, width - 1)),
            precision=self._of(("HIGHEST", "DEFAULT")),
            **made,
        )

    def _weights(self, template: str, width: int) -> Iterator[tuple[str, str]]:
        shapes = {"square": (width, width), "vector": (width,), "taps": (3, width)}
        yield from ((n, self._weight(s)) for n, s in shapes.items() if f"{{{n}}}" in template)
        yield "rates", self._sketch.weight(f"-np.ones(({width}, 2), np.float32)")

    def _weight(self, shape: Shape) -> str:
        seed = self._draw(st.integers(0, 9))
        return self._sketch.weight(f'filled("normal", {seed}, {shape}, DTYPE)')

    def _keep(self, expression: str) -> None:
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {expression}", name)
