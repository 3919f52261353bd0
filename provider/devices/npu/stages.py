"""Steps of a decoder's row put together, as the design for all of them takes them.

A product takes in the norm, the gate or the product before it, and the sum or the write into a
cache behind it; products of one operand become one. Every value that a step makes is rounded as
before, so the results are those of the steps one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx_iron.dtypes import BFLOAT16, Spec
from onnx_iron.kernels.designs.decode import Prologue, Stage
from onnx_iron.kernels.designs.design import Access, Port, Scalar
from onnx_iron.operators.arithmetic import Add, Mul
from onnx_iron.operators.attention import Attention
from onnx_iron.operators.copy import Copy
from onnx_iron.operators.gemv import GEMV
from onnx_iron.operators.rms_norm import RMSNorm
from onnx_iron.operators.rope import RoPE
from onnx_iron.operators.silu import SiLU
from onnx_iron.operators.slice_scatter import SliceScatter
from onnx_iron.provider.devices.npu.attention import Gathering, Gatherings
from onnx_iron.provider.lowering import KernelCall, Lowering
from onnx_iron.provider.operator import Operator
from onnx_iron.provider.subgraph import Subgraph


@dataclass
class Fused:
    """Steps that are one of the design's, by the names of their values.

    Attributes:
        parts: the steps, in order.
        sources: what the prologue reads.
        rows, n: of the first of these.
        state, start: the state that the result is one entry of, and which.
        gathering: what makes the source, where that is of an attention, the first of the parts.
    """

    parts: tuple[KernelCall, ...]
    prologue: Prologue
    sources: tuple[str, ...]
    rows: int
    n: int
    result: str
    number: float = 0.0
    weight: str | None = None
    added: str | None = None
    state: str | None = None
    start: str | None = None
    gathering: Gathering | None = None

    @property
    def own(self) -> tuple[KernelCall, ...]:
        """The parts that are this step, beside what gathers for it."""
        if self.gathering is None:
            return self.parts
        return self.parts[1:] or (self.step(),)

    @property
    def operands(self) -> list[str]:
        """The design's buffers as values."""
        optional = (name for name in (self.added, self.weight) if name is not None)
        return [*self.sources, *optional, self.result]

    def step(self) -> KernelCall:
        """What it reads and writes."""
        main = next((part for part in self.parts if isinstance(part.op, GEMV)), self.parts[0])
        if isinstance(main.op, Attention):
            read: list[str | None] = [*self.operands[:-1]]
            return KernelCall(main.name, Copy(), read, [self.result])
        state = [] if self.state is None else [self.state, self.start]
        return KernelCall(main.name, main.op, [*state, *self.operands[:-1]], [self.result])

    def stage(self, lowering: Lowering) -> Stage:
        """What the design is asked for."""

        def port(name: str, value: str, access: Access = Access.READ) -> Port:
            spec = lowering.specs[value]
            return Port(name, spec.dtype.name, spec.shape, access)

        updates = self.state is not None
        return Stage(
            prologue=self.prologue,
            operands=tuple(port(f"x{i}", name) for i, name in enumerate(self.sources)),
            rows=self.rows,
            n=self.n,
            result=port("y", self.result, Access.UPDATE if updates else Access.WRITE),
            number=self.number,
            weight=None if self.weight is None else port("weight", self.weight),
            added=None if self.added is None else port("added", self.added),
            entry=Scalar("start", 0, lowering.specs[self.result].shape[0] - 1) if updates else None,
        )


@dataclass
class _Finder:
    """Who makes and who reads a subgraph's values."""

    subgraph: Subgraph
    steps: Sequence[KernelCall]
    gatherings: Gatherings
    producer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    writers: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, step in enumerate(self.steps):
            self.producer.update(dict.fromkeys(step.outputs, at))
            for name in step.inputs:
                if name is not None:
                    self.readers.setdefault(self.root(name), []).append(at)
            for name in step.outputs:
                self.writers.setdefault(self.subgraph.memory(name), []).append(at)

    def may_wait(self, made: Fused) -> bool:
        """Whether all parts may run where the last one does: nothing writes over what they read."""
        places = [self.producer[part.outputs[0]] for part in made.parts]
        return not any(
            at < writer <= places[-1]
            for part, at in zip(made.parts[:-1], places, strict=False)
            for name in part.inputs
            if name is not None
            for writer in self.writers.get(self.subgraph.memory(name), ())
            if writer not in places
        )

    def root(self, name: str) -> str:
        return self.subgraph.lowering.resolve(name)[0]

    def spec(self, name: str) -> Spec:
        return self.subgraph.lowering.specs[name]

    def size(self, name: str) -> int:
        return self.spec(name).elements

    def whole(self, name: str) -> bool:
        """Whether a value is all of its root, in bfloat16."""
        root, offset = self.subgraph.lowering.resolve(name)
        spec = self.spec(name)
        return offset == 0 and spec.bytes == self.spec(root).bytes and spec.dtype == BFLOAT16

    def maker(self, name: str, *kinds: type[Operator]) -> KernelCall | None:
        """The step of one of these kinds that makes a value, which is no output."""
        root = self.root(name)
        if root not in self.producer or root in self.subgraph.placed or not self.whole(name):
            return None
        step = self.steps[self.producer[root]]
        return step if isinstance(step.op, kinds) else None

    def before(self, name: str, *kinds: type[Operator]) -> KernelCall | None:
        """The same, where nobody else reads the value."""
        return self.maker(name, *kinds) if len(self.readers[self.root(name)]) == 1 else None

    def behind(self, step: KernelCall, *kinds: type[Operator]) -> KernelCall | None:
        """The only reader of a step's value, of one of these kinds."""
        readers = self.readers.get(step.outputs[0], [])
        if len(readers) != 1 or step.outputs[0] in self.subgraph.placed:
            return None
        reader = self.steps[readers[0]]
        return reader if isinstance(reader.op, kinds) else None


def fused(subgraph: Subgraph, gatherings: Gatherings) -> Iterator[Fused]:
    """What steps of a subgraph can be put together: around products, and beside them."""
    finder = _Finder(subgraph, subgraph.steps, gatherings)
    products = [step for step in subgraph.steps if isinstance(step.op, GEMV)]
    if not products:
        return
    around = [_product(finder, step) for step in products]
    yield from around
    absorbed = Counter(id(part) for made in around for part in made.parts)
    taken = {
        id(step)
        for step in subgraph.steps
        if isinstance(step.op, RMSNorm)
        and absorbed[id(step)] == len(finder.readers.get(step.outputs[0], ()))
    }
    taken |= {id(p) for made in around for p in made.parts if not isinstance(p.op, RMSNorm)}
    # Beside the products, those that are as short.
    widest = max(max(finder.spec(str(step.inputs[0])).shape) for step in products)
    for step in reversed(subgraph.steps):
        made = None if id(step) in taken else _alone(finder, step)
        if made is None or not finder.may_wait(made):
            continue
        if made.gathering is None and finder.size(made.sources[0]) > widest:
            continue
        taken.update(map(id, made.parts))
        yield made


def _product(finder: _Finder, step: KernelCall) -> Fused:
    """A product with what comes before it and behind it, as far as all of that may wait."""
    weight, x = map(str, step.inputs)
    alone = Fused((), Prologue.NONE, (x,), 1, finder.size(x), "")
    tried = []
    for made in (_prepared(finder, x), alone):
        if made is not None and made.rows * made.n == finder.size(x):
            parts = (*made.parts, step)
            plain = replace(made, parts=parts, weight=weight, result=step.outputs[0])
            tried += [_finished(finder, plain, step), plain]
    return next(made for made in tried if finder.may_wait(made))


def _prepared(finder: _Finder, x: str) -> Fused | None:
    """What makes a product's operand, where the product may do it for itself."""
    norm = finder.maker(x, RMSNorm)
    if norm is not None and _is_row(finder, norm):
        return _normed(finder, norm, norm.outputs[0])
    attention = finder.before(x, Attention)
    if attention is not None:
        return _attended(finder, attention, attention.outputs[0])
    product = finder.before(x, Mul)
    return None if product is None else _multiplied(finder, product)


def _attended(finder: _Finder, step: KernelCall, y: str) -> Fused | None:
    made = finder.gatherings.of(step)
    if made is None:
        return None
    parts = made.parts
    return Fused(
        (step,),
        Prologue.MERGE,
        (made.states,),
        parts.heads,
        parts.dim,
        y,
        parts.parts,
        gathering=made,
    )


def _is_row(finder: _Finder, norm: KernelCall) -> bool:
    return (
        len(norm.inputs) > 1
        and norm.inputs[1] is not None
        and (finder.size(norm.outputs[0]) == finder.size(norm.inputs[1]))
    )


def _alone(finder: _Finder, step: KernelCall) -> Fused | None:
    """A step without a product, and those around it."""
    y = step.outputs[0]
    if isinstance(step.op, Attention):
        return _attended(finder, step, y)
    bfloat16 = all(finder.spec(n).dtype == BFLOAT16 for n in (y, *_operands(step)))
    if not bfloat16:
        return None
    if isinstance(step.op, SliceScatter):
        return _written(finder, step)
    if isinstance(step.op, RMSNorm) and len(step.inputs) > 1 and step.inputs[1] is not None:
        return _normed(finder, step, y)
    if isinstance(step.op, RoPE):
        return _turned(finder, step)
    if isinstance(step.op, Mul):
        return _multiplied(finder, step)
    if isinstance(step.op, Add):
        a, b = map(str, step.inputs)
        if finder.size(a) == finder.size(b) == finder.size(y):
            return Fused((step,), Prologue.NONE, (a,), 1, finder.size(y), y, added=b)
    return None


def _operands(step: KernelCall) -> list[str]:
    names = step.inputs[:2] if isinstance(step.op, SliceScatter) else step.inputs
    return [name for name in names if name is not None]


def _normed(finder: _Finder, step: KernelCall, y: str) -> Fused:
    x, weight = map(str, step.inputs)
    n, epsilon = finder.size(weight), float(step.op.attributes()["epsilon"])
    return Fused((step,), Prologue.NORM, (x, weight), finder.size(y) // n, n, y, epsilon)


def _multiplied(finder: _Finder, step: KernelCall) -> Fused | None:
    y = step.outputs[0]
    names = [str(name) for name in step.inputs]
    if any(finder.size(name) != finder.size(y) for name in names):
        return None
    for name, other in (names, names[::-1]):
        gate = finder.before(name, SiLU)
        if gate is not None:
            sources = (str(gate.inputs[0]), other)
            return Fused((gate, step), Prologue.GATE, sources, 1, finder.size(y), y)
    return Fused((step,), Prologue.MUL, (names[0], names[1]), 1, finder.size(y), y)


def _turned(finder: _Finder, step: KernelCall) -> Fused | None:
    x, angles = map(str, step.inputs)
    n = finder.spec(x).shape[-1]
    if finder.size(angles) != n:
        return None
    pairs = step.op.attributes()["interleaved"]
    prologue = Prologue.ROPE_PAIRS if pairs else Prologue.ROPE
    return Fused((step,), prologue, (x, angles), finder.size(x) // n, n, step.outputs[0])


def _written(finder: _Finder, step: KernelCall) -> Fused | None:
    """One entry of a state, as it is or turned."""
    source = str(step.inputs[1])
    if not _is_entry(finder, step, source):
        return None
    rope = finder.before(source, RoPE)
    made = None if rope is None else _turned(finder, rope)
    if made is None:
        made = Fused((), Prologue.NONE, (source,), 1, finder.size(source), "")
    return _into_state(made, step)


def _is_entry(finder: _Finder, step: KernelCall, source: str) -> bool:
    """Whether a step writes a whole entry, at a place that is a per-call value."""
    shape = finder.spec(step.outputs[0]).shape
    return (
        step.inputs[1] == source
        and len(step.inputs) == 3
        and int(step.op.attributes()["axis"]) == 0
        and finder.size(source) * shape[0] == finder.size(step.outputs[0])
    )


def _into_state(made: Fused, step: KernelCall) -> Fused:
    state, _, start = map(str, step.inputs)
    return replace(
        made, parts=(*made.parts, step), result=step.outputs[0], state=state, start=start
    )


def _finished(finder: _Finder, made: Fused, step: KernelCall) -> Fused:
    """With what follows a product."""
    y = step.outputs[0]
    behind = finder.behind(step, Add, SliceScatter)
    if behind is None:
        return made
    if isinstance(behind.op, SliceScatter):
        source = str(behind.inputs[1])
        if finder.root(source) == y and finder.whole(source) and _is_entry(finder, behind, source):
            return _into_state(made, behind)
        return made
    a, b = map(str, behind.inputs)
    other = b if finder.root(a) == y else a
    if finder.size(other) != finder.size(y) or finder.size(behind.outputs[0]) != finder.size(y):
        return made
    return replace(made, parts=(*made.parts, behind), result=behind.outputs[0], added=other)


def place(made: Fused, places: Mapping[int, int]) -> int:
    """Where among the subgraph's steps it runs: at its last part, or at the first of its products
    where it is several, for others read that.

    Args:
        places: by a step's id.
    """
    products = [places[id(part)] for part in made.parts if isinstance(part.op, GEMV)]
    return min(products) if len(products) > 1 else max(places[id(part)] for part in made.parts)
