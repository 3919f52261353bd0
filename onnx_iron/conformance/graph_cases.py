"""Cases of whole graphs: blocks of networks, states, views, per-call values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron import functional as F
from onnx_iron.conformance.case import Call, Case
from onnx_iron.dtypes import FLOAT32, FLOATS, Array, DType, Shape
from onnx_iron.graph import Graph, Trace, state
from onnx_iron.operators import Op
from onnx_iron.operators.declaration import Tolerance

WIDTH, HEADS, CHUNK, CACHE = 32, 2, 6, 16
HIGHEST = F.Precision.HIGHEST


@dataclass(frozen=True)
class Blueprint:
    """A graph, the shapes of its inputs, and the per-call values of its calls in order."""

    graph: type[Graph]
    shapes: Mapping[str, Shape]
    calls: tuple[Mapping[str, int], ...] = ({},)


BLUEPRINTS: dict[str, Blueprint] = {}


def graph(
    name: str, calls: tuple[Mapping[str, int], ...] = ({}, {}), **shapes: Shape
) -> Callable[[type[Graph]], type[Graph]]:
    """Enter a graph under the name that a report shows."""

    def enter(made: type[Graph]) -> type[Graph]:
        BLUEPRINTS[name] = Blueprint(made, shapes, calls)
        return made

    return enter


class Block(Graph):
    """A graph that makes its weights in one dtype, the same for one seed."""

    def __init__(self, dtype: DType) -> None:
        self._dtype, self._seed = dtype, 0
        self.build()

    def build(self) -> None:
        """Make weights and states."""

    def weight(self, *shape: int) -> Array:
        """Normal numbers of a size that keeps activations near 1."""
        self._seed += 1
        numbers = np.random.default_rng(self._seed).standard_normal(shape) / shape[-1] ** 0.5
        return np.asarray(numbers.astype(np.float32).astype(self._dtype))

    def state(self, *shape: int) -> Any:
        """A state of the graph's dtype."""
        return state(shape, self._dtype)


SEQUENCES = 3
PREFILL = ({"rows": 6}, {"rows": 1}, {"rows": 0}, {"rows": 4})


@graph("short convolution, prefill", PREFILL, x=(CHUNK, WIDTH))
@graph("short convolution, decode", ({"rows": 1},) * 3, x=(1, WIDTH))
class ShortConvolution(Block):
    """LFM2's block: two gates around a causal filter with carried state."""

    def build(self) -> None:
        self.norm = self.weight(WIDTH)
        self.into = [self.weight(WIDTH, WIDTH) for _ in range(3)]
        self.out = self.weight(WIDTH, WIDTH)
        self.taps = self.weight(3, WIDTH)
        self.conv = F.conv_state(3, WIDTH, CHUNK, self._dtype)

    def body(self, x: Any, *, rows: Any) -> Any:
        x = x[..., :rows, :] if x.shape[-2] > 1 else x
        h = F.rms_norm(x, WIDTH, self.norm)
        before, after, signal = (F.linear(h, w, precision=HIGHEST) for w in self.into)
        h = after * F.causal_conv1d(before * signal, self.taps, self.conv)
        return x + F.linear(h, self.out, precision=HIGHEST)


@graph("short convolutions of a batch, prefill", PREFILL, x=(SEQUENCES, CHUNK, WIDTH))
@graph("short convolutions of a batch, decode", ({"rows": 1},) * 3, x=(SEQUENCES, 1, WIDTH))
class ShortConvolutions(ShortConvolution):
    """The same of several sequences, each with rows of its own in the state."""

    def build(self) -> None:
        super().build()
        self.conv = F.conv_state(3, WIDTH, CHUNK, self._dtype, batch=SEQUENCES)


@graph(
    "caches of a batch, written at one place",
    ({"position": 0, "rows": 6}, {"position": 6, "rows": 2}, {"position": 8, "rows": 6}),
    x=(SEQUENCES, CHUNK, WIDTH),
    angles=(CHUNK, WIDTH // HEADS),
)
class Caches(Block):
    """Rows of several sequences turned by the angles that they share, and kept."""

    def build(self) -> None:
        self.turned = self.state(SEQUENCES, CACHE, HEADS, WIDTH // HEADS)
        self.own = self.state(SEQUENCES, CACHE, HEADS, WIDTH // HEADS)

    def body(self, x: Any, angles: Any, *, position: Any, rows: Any) -> Any:
        x, here = x[:, :rows], slice(position, position + x.shape[1])
        split = x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS)
        self.turned[:, here] = F.rope(split, angles)
        each = F.stack([angles, angles * 0.5, angles * 2], 0)
        self.own[:, here] = F.rope(split, each, interleaved=True)
        return x + self.turned[:, position].reshape(SEQUENCES, 1, WIDTH)


@graph(
    "decoder layer, prefill",
    ({"position": 0, "rows": 6}, {"position": 6, "rows": 3}, {"position": 9, "rows": 6}),
    x=(CHUNK, WIDTH),
    angles=(CHUNK, WIDTH // HEADS),
)
@graph(
    "decoder layer, decode",
    tuple({"position": i, "rows": 1} for i in range(3)),
    x=(1, WIDTH),
    angles=(1, WIDTH // HEADS),
)
class DecoderLayer(Block):
    """A layer of Llama: cached attention of turned heads, and a gated projection."""

    def build(self) -> None:
        self.norms = [self.weight(WIDTH) for _ in range(2)]
        self.q, self.o = self.weight(WIDTH, WIDTH), self.weight(WIDTH, WIDTH)
        self.k, self.v = (self.weight(WIDTH // HEADS, WIDTH) for _ in range(2))
        self.gate, self.up = (self.weight(48, WIDTH) for _ in range(2))
        self.down = self.weight(WIDTH, 48)
        self.keys, self.values = (self.state(CACHE, 1, WIDTH // HEADS) for _ in range(2))

    def body(self, x: Any, angles: Any, *, position: Any, rows: Any) -> Any:
        length, width = x.shape[-2], WIDTH // HEADS
        if length > 1:
            x, angles = x[..., :rows, :], angles[:rows]
        h = F.rms_norm(x, WIDTH, self.norms[0])
        q, k, v = (
            F.linear(h, w, precision=HIGHEST).reshape(*x.shape[:-1], -1, width)
            for w in (self.q, self.k, self.v)
        )
        here = (..., slice(position, position + length), slice(None), slice(None))
        self.keys[here] = F.rope(k, angles)
        self.values[here] = v
        y = F.scaled_dot_product_attention(
            F.rope(q, angles),
            self.keys,
            self.values,
            position=position,
            is_causal=True,
            enable_gqa=True,
        )
        x = x + F.linear(y.reshape(x.shape), self.o, precision=HIGHEST)
        h = F.rms_norm(x, WIDTH, self.norms[1])
        gate, up = (F.linear(h, w, precision=HIGHEST) for w in (self.gate, self.up))
        return x + F.linear(F.silu(gate) * up, self.down, precision=HIGHEST)


@graph(
    "decoder layers of a batch, prefill",
    ({"position": 0, "rows": 6}, {"position": 6, "rows": 3}, {"position": 9, "rows": 6}),
    x=(SEQUENCES, CHUNK, WIDTH),
    angles=(CHUNK, WIDTH // HEADS),
)
@graph(
    "decoder layers of a batch, decode",
    tuple({"position": i, "rows": 1} for i in range(3)),
    x=(SEQUENCES, 1, WIDTH),
    angles=(1, WIDTH // HEADS),
)
class DecoderLayers(DecoderLayer):
    """The same of several sequences at one position, each with a cache of its own."""

    def build(self) -> None:
        super().build()
        cache = SEQUENCES, CACHE, 1, WIDTH // HEADS
        self.keys, self.values = (self.state(*cache) for _ in range(2))


@graph("encoder layer", ({}, {}), x=(5, WIDTH))
@graph("encoder layers of a batch", ({}, {}), x=(SEQUENCES, 5, WIDTH))
class EncoderLayer(Block):
    """A layer of BERT: attention of all rows to all, GELU, layer norms with biases."""

    def build(self) -> None:
        self.qkvo = [self.weight(WIDTH, WIDTH) for _ in range(4)]
        self.biases = [self.weight(WIDTH) for _ in range(6)]
        self.up, self.down = self.weight(64, WIDTH), self.weight(WIDTH, 64)
        self.up_bias = self.weight(64)

    def body(self, x: Any) -> Any:
        split = *x.shape[:-1], HEADS, WIDTH // HEADS
        q, k, v = (
            F.linear(x, w, b, precision=HIGHEST).reshape(split)
            for w, b in zip(self.qkvo[:3], self.biases[:3], strict=True)
        )
        y = F.scaled_dot_product_attention(q, k, v).reshape(x.shape)
        x = x + F.linear(y, self.qkvo[3], precision=HIGHEST)
        x = F.layer_norm(x, WIDTH, self.biases[3], self.biases[4])
        h = F.gelu(F.linear(x, self.up, self.up_bias, precision=HIGHEST))
        h = F.linear(h, self.down, precision=HIGHEST)
        return F.layer_norm(x + h, WIDTH, None, self.biases[5])


@graph("operands that are views of one another", ({}, {}), x=(6, 8))
class Views(Block):
    """Sums and products of a value with its own rows, columns, reshapes and copies of parts."""

    def body(self, x: Any) -> Any:
        h = x * x
        first = h + h[0]
        column = first * first[:, 2:3].copy()
        turned = column.transpose(1, 0).copy().reshape(6, 8)
        middle = turned[1:5].copy()
        return {"rows": turned - h[5], "whole": turned + turned, "middle": middle * middle[1]}


@graph("one state, read and written several times", tuple({"at": i} for i in (0, 3, 1)), x=(4, 8))
class OneState(Block):
    """Reads before, between and after writes of one state give what it held then."""

    def build(self) -> None:
        self.kept = self.state(4, 8)

    def body(self, x: Any, *, at: Any) -> Any:
        before = self.kept + x
        self.kept[at] = x[0]
        between = self.kept * x
        self.kept[...] = self.kept + between
        self.kept[1:3] = x[1:3]
        return {"before": before, "between": between, "after": self.kept + before}


@graph("states that are swapped", ({}, {}, {}), x=(4, 8))
class Swapped(Block):
    """Each of two states takes what the other held: no write may come before a read."""

    def build(self) -> None:
        self.one, self.other = self.state(4, 8), self.state(4, 8)

    def body(self, x: Any) -> Any:
        one, other = self.one.copy(), self.other.copy()
        self.one[...] = other + x
        self.other[...] = one - x
        return one + other


@graph("a state never written, and one never read", ({}, {}), x=(4, 8))
class OneWay(Block):
    """What is only read stays; what is only written still comes out."""

    def build(self) -> None:
        self.read, self.written = self.state(4, 8), self.state(2, 8)

    def body(self, x: Any) -> Any:
        self.written[...] = x[2:4]
        return x + self.read


@graph(
    "a ring of rows at places that only a call knows",
    tuple({"at": i} for i in (0, 2, 4, 1)),
    x=(2, 8),
)
class Ring(Block):
    """Writes and reads at a per-call place, inside a layer of a larger state."""

    def build(self) -> None:
        self.layers = self.state(3, 6, 8)

    def body(self, x: Any, *, at: Any) -> Any:
        self.layers[1, at : at + 2] = x
        self.layers[2, at] = x[1]
        seen = self.layers[1].copy()
        return {"all": seen, "one": self.layers[2, at].copy(), "two": seen[at : at + 2].copy()}


@graph("a long chain of sums", ({}, {}), x=(3, 8))
class Chain(Block):
    """Forty steps one after another, every fifth value read again at the end."""

    def body(self, x: Any) -> Any:
        kept = []
        for i in range(40):
            x = x * 0.5 + float(i % 3 - 1)
            if i % 5 == 0:
                kept.append(x)
        for value in kept:
            x = x + value
        return x


def graph_cases() -> Iterator[Case]:
    """Every graph in each dtype."""
    for name, blueprint in BLUEPRINTS.items():
        for dtype in FLOATS:
            yield Case(
                name=f"{name}, {dtype.name}",
                subject=name,
                dtype=dtype,
                make=functools.partial(_traced, name, dtype),
                calls=tuple(_calls(blueprint, dtype)),
                tolerance=_tolerance(_traced(name, dtype), dtype),
            )


def _traced(name: str, dtype: DType) -> Trace:
    blueprint = BLUEPRINTS[name]
    specs = {name: (shape, dtype) for name, shape in blueprint.shapes.items()}
    return blueprint.graph(dtype).trace(**specs)  # type: ignore[call-arg]


def _calls(blueprint: Blueprint, dtype: DType) -> Iterator[Call]:
    rng = np.random.default_rng(5)
    for values in blueprint.calls:
        arrays = {
            name: rng.standard_normal(shape).astype(np.float32).astype(dtype)
            for name, shape in blueprint.shapes.items()
        }
        yield Call("normal", arrays, values)


def _tolerance(trace: Trace, dtype: DType) -> Tolerance:
    """None where all steps are exact; else a few units of the largest element's last place."""
    if all(step.op.tolerance == Op.tolerance for step in trace.steps):
        return Op.tolerance
    # The worst seen is 0.48 and 0.65 of it.
    return Tolerance(
        0,
        0,
        "a step's rounding to the other side of a boundary is carried on by those after it",
        of_magnitude=2.0**-20 if dtype == FLOAT32 else 2.0**-6,
    )
