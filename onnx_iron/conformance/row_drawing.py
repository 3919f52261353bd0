"""Random graphs whose rows are a sequence: any cut of it into calls must give the same bits."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from hypothesis import strategies as st

from onnx_iron.conformance.drawing import Draw, Drawing, drawn_operators, spelled
from onnx_iron.conformance.programs import Program
from onnx_iron.conformance.sketch import Refused, Sketch
from onnx_iron.dtypes import FLOAT32, Shape, Spec
from onnx_iron.operators import Case as Declared
from onnx_iron.operators import Kind, Op

# No other size is a chunk's, so that a shape tells whether it has rows.
CHUNK, WIDTHS, SEQUENCE = 5, (2, 4, 8), 9


@st.composite
def sequences(draw: Draw, depth: int = 12) -> tuple[Program, tuple[tuple[int, ...], ...]]:
    """A body whose rows see those before them only by way of its states, and cuts of a sequence
    into calls: the rows of each, at most a chunk.
    """
    width = draw(st.sampled_from(WIDTHS))
    conv, heads = draw(st.integers(2, 4)), draw(st.sampled_from((1, 2)))
    cache = f"state(({SEQUENCE + CHUNK}, {heads}, {width // heads}), DTYPE)"
    sketch = Sketch(
        dtype=draw(st.sampled_from(("float32", "bfloat16"))),
        inputs={"x0": (CHUNK, width), "x1": (CHUNK, width)},
        states={
            "conv": f"F.conv_state({conv}, {width}, {CHUNK}, DTYPE)",
            "keys": cache,
            "values": cache,
        },
        values={"position": SEQUENCE - CHUNK, "rows": CHUNK},
    )
    drawn = _Rows(draw, sketch, conv, heads)
    for name in ("x0", "x1"):
        sketch.keep(f"{name} = {name}[:rows] if {name}.shape[0] > 1 else {name}")
    sketch.tensors[:] = ["x0", "x1"]
    idioms = [drawn.convolution, drawn.attention]
    for _ in range(draw(st.integers(1, depth))):
        statement = draw(st.sampled_from((drawn.step, drawn.step, drawn.linear, *idioms)))
        if statement in idioms:
            idioms.remove(statement)  # each has one state
        with contextlib.suppress(Refused):
            statement()
    results = [name for name in sketch.results() if sketch.shape(name)[0] == CHUNK]
    if not results:
        sketch.keep("h = x0 + x1", "h")
        results = ["h"]
    more = draw(st.lists(st.sampled_from(results), max_size=2))
    program = sketch.program(list(dict.fromkeys([results[0], *more])), (), "normal")
    cuts = tuple(tuple(draw(_cuts())) for _ in range(2))
    return program, cuts


@st.composite
def _cuts(draw: Draw) -> list[int]:
    cut: list[int] = []
    while sum(cut) < SEQUENCE:
        cut.append(draw(st.integers(0 if cut and cut[-1] else 1, min(CHUNK, SEQUENCE - sum(cut)))))
    return cut


class _Rows(Drawing):
    """Draws statements that keep rows apart."""

    def __init__(self, draw: Draw, sketch: Sketch, conv: int, heads: int) -> None:
        super().__init__(draw, sketch)
        self._conv, self._heads = conv, heads

    def step(self) -> None:
        """A step of an operator that computes a row from that row alone."""
        op = self._of(drawn_operators())
        declared = self._of([case for case in op.cases if rowwise(op, case)] or [None])
        if declared is None:
            return
        lead = _lead(op, declared)
        first = self._of(self._tensors())
        has = self._sketch.shape(first)
        if len(has) != len(declared.shapes[lead]):
            return
        sizes = dict(zip(declared.shapes[lead], has, strict=True))
        if tuple(sizes[d] for d in declared.shapes[lead]) != has:
            return
        operands = {}
        for made in op.inputs:
            dims = declared.shapes.get(made.name)
            if made.name == lead:
                operands[made.name] = first
            elif dims is not None:
                operands[made.name] = self._other_operand(dims, sizes)
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {spelled(op, operands, declared.attributes)}", name)

    def linear(self) -> None:
        """A product with a weight."""
        first = self._of(self._tensors())
        shape = (self._of(WIDTHS), self._sketch.shape(first)[-1])
        weight = self._weight(shape)
        bias = self._weight(shape[:1]) if self._draw(st.booleans()) else "None"
        precision = self._of(("HIGHEST", "DEFAULT"))
        call = f"F.linear({first}, {weight}, {bias}, precision=F.Precision.{precision})"
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {call}", name)

    def convolution(self) -> None:
        """A causal filter with its state."""
        width = self._sketch.shape("x0")[1]
        first = self._of([t for t in self._tensors() if self._sketch.shape(t)[1:] == (width,)])
        activation = self._of((None, "silu"))
        taps = self._weight((self._conv, width))
        call = f"F.causal_conv1d({first}, {taps}, self.conv, activation={activation!r})"
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {call}", name)

    def attention(self) -> None:
        """Rows written to a cache, and attention to those so far."""
        width = self._sketch.shape("x0")[1]
        wide = [t for t in self._tensors() if self._sketch.shape(t)[1:] == (width,)]
        query, key, value = (self._of(wide) for _ in range(3))
        split = f"reshape(-1, {self._heads}, {width // self._heads})"
        for cache, rows in (("keys", key), ("values", value)):
            place = f"position : position + {rows}.shape[0]"
            self._sketch.keep(f"self.{cache}[{place}] = {rows}.{split}")
        call = (
            f"F.scaled_dot_product_attention({query}.{split}, self.keys, self.values, "
            f"position=position, is_causal=True, layout='rows_first').reshape(-1, {width})"
        )
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {call}", name)

    def _weight(self, shape: Shape) -> str:
        seed = self._draw(st.integers(0, 9))
        return self._sketch.weight(f'filled("normal", {seed}, {shape}, DTYPE)')

    def _other_operand(self, dims: Shape, sizes: dict[int, int]) -> str:
        first = next(iter(sizes))
        shape = tuple(sizes.setdefault(dim, self._of(WIDTHS)) for dim in dims)
        if dims[:1] != (first,):
            return self._weight(shape)
        return self._of([t for t in self._tensors() if self._sketch.shape(t) == shape])


def _lead(op: type[Op], declared: Declared) -> str:
    kinds = {made.name: made.kind for made in op.inputs}
    tensors = [name for name in declared.shapes if kinds[name] is not Kind.INDEX]
    return max(tensors, key=lambda name: len(declared.shapes[name]))


def rowwise(op: type[Op], declared: Declared) -> bool:
    """Whether each row of an operator's result is that of the same row of its first operand and of
    those that have as many rows, as its oracle has it.
    """
    if declared.values or len(op.outputs) > 1 or any(d.kind is Kind.INDEX for d in op.inputs):
        return False
    operator, random = op(**declared.attributes), np.random.default_rng(0)
    rows = declared.shapes[_lead(op, declared)][:1]
    if len(declared.shapes[_lead(op, declared)]) != 2:
        return False  # rows of a drawn sequence are matrices
    arrays: dict[str, Any] = {n: random.standard_normal(s) for n, s in declared.shapes.items()}

    def run(part: slice) -> Any:
        given = {n: a[part] if a.shape[:1] == rows else a for n, a in arrays.items()}
        operands = [given.get(d.name) for d in op.inputs]
        operator.infer([None if x is None else Spec(x.shape, FLOAT32) for x in operands])
        return operator.oracle(*operands)

    try:
        with np.errstate(all="ignore"):  # logarithms and roots of negative numbers
            whole, parts = run(slice(None)), [run(slice(i, i + 1)) for i in range(rows[0])]
    except ValueError:
        return False
    joined = np.concatenate(parts)
    return joined.shape == whole.shape and bool(
        np.allclose(joined, whole, rtol=1e-9, atol=1e-12, equal_nan=True)
    )
