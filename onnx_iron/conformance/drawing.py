"""Random graphs, for hypothesis: valid bodies over what the operators declare."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from onnx_iron import functional as F
from onnx_iron.conformance.programs import Program
from onnx_iron.conformance.sketch import Refused, Sketch
from onnx_iron.dtypes import Shape
from onnx_iron.operators import OPERATORS, Kind, Op
from onnx_iron.operators import Case as Declared

DEPTH = 30
DIMS = (1, 2, 3, 4, 6, 8)
# A declared size that is larger is only an example; a smaller one may be tied to another.
EXAMPLE = 12
MOST_ELEMENTS = 4096
SYMBOLS = {np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/"}
# What functional calls an operator's input or attribute otherwise.
ALIASES = {"eps": "epsilon", "input": "ids"}

Draw = Callable[[st.SearchStrategy[Any]], Any]
T = TypeVar("T")


@st.composite
def graphs(draw: Draw, depth: int = DEPTH) -> Program:
    """Graphs of up to ``depth`` statements: steps of every operator, views, slices and copies,
    several states, and places that only a call knows.
    """
    shapes = st.lists(st.sampled_from(DIMS), min_size=1, max_size=3).map(tuple)
    values = {f"at{i}": draw(st.integers(1, 3)) for i in range(draw(st.integers(0, 2)))}
    states = [draw(shapes) for _ in range(draw(st.integers(0, 3)))]
    if len(states) > 1 and draw(st.booleans()):
        states[1] = states[0]  # so that they may be swapped
    sketch = Sketch(
        dtype=draw(st.sampled_from(("float32", "bfloat16"))),
        inputs={f"x{i}": draw(shapes) for i in range(draw(st.integers(1, 2)))},
        states={f"s{i}": f"state({shape}, DTYPE)" for i, shape in enumerate(states)},
        values=values,
    )
    drawn = Drawing(draw, sketch)
    for _ in range(draw(st.integers(1, depth))):
        kinds = (*[drawn.step] * 3, drawn.part, drawn.bound, drawn.write, drawn.choice)
        statement = draw(st.sampled_from(kinds))
        with contextlib.suppress(Refused):  # then it is left out
            statement()
    results = list(sketch.results())
    if not results:
        sketch.keep("h = x0.copy()", "h")
        results = ["h"]
    more = draw(st.lists(st.sampled_from(results), max_size=3))
    calls = [
        {name: draw(st.integers(0, most)) for name, most in values.items()}
        for _ in range(draw(st.integers(1, 3)))
    ]
    kind = draw(st.sampled_from(("normal", "zeros")))
    return sketch.program(list(dict.fromkeys([results[0], *more])), calls, kind)


def drawn_operators() -> list[type[Op]]:
    """The operators that are drawn: those whose operands and results are floats, and indices."""
    of_floats = (
        op
        for _, op in sorted(OPERATORS.items())
        if not op.results and all(made.kind is not Kind.BOOL for made in op.inputs)
    )
    return list(of_floats)


class Drawing:
    """Draws statements of a body."""

    def __init__(self, draw: Draw, sketch: Sketch) -> None:
        self._draw = draw
        self._sketch = sketch

    def _of(self, things: Sequence[T]) -> T:
        assume(bool(things))
        chosen: T = self._draw(st.sampled_from(things))
        return chosen

    # -- statements -------------------------------------------------------------------------

    def step(self) -> None:
        """A step of any operator, in the form of one of its declared cases."""
        op = self._of(drawn_operators())
        declared = self._of(op.cases)
        operands = self.operands(op, declared)
        if operands is None:
            return
        names = [f"{self._sketch.new()}{'abc'[i]}" for i in range(len(op.outputs))]
        call = spelled(op, operands, declared.attributes)
        self._sketch.keep(f"{', '.join(names)} = {call}", *names)

    def part(self) -> None:
        """A part, a view or another shape of a tensor, under a name of its own."""
        name = self._sketch.new()
        tensor = self._of(self._tensors())
        shape = self._sketch.shape(tensor)
        made = self._of([*self._parts(tensor, shape), *self._shapes(tensor, shape)])
        self._sketch.keep(f"{name} = {self._operand(made)}", name)

    def bound(self) -> None:
        """A tensor whose rows beyond a number that only a call knows are padding."""
        value = self._of([*self._values(), "2"])
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {self._of(self._tensors())}[:{value}]", name)

    def write(self) -> None:
        """A write into a state, or into a part of one."""
        states = [f"self.{name}" for name in self._sketch.states]
        if not states:
            return
        state = self._of(states)
        shape = self._sketch.shape(state)
        part = self._of([f"{state}[...]", *self._parts(state, shape)])
        source = self._of(list(self._of_shape(self._sketch.shape(part))))
        self._sketch.keep(f"{part} = {source}")

    def choice(self) -> None:
        """Comparisons, and integers that say which: of inputs and weights alone, since a number
        that an earlier step rounds may fall on either side.
        """
        x = self._of(list(self._sketch.inputs))
        shape = self._sketch.shape(x)
        size, seed = shape[-1], self._draw(st.integers(0, 9))
        border = self._sketch.weight(f'filled("normal", {seed}, {shape}, DTYPE)')
        first, second = (self._of(list(self._of_shape(shape))) for _ in range(2))
        table = self._of(list(self._of_shape((size, self._of(DIMS)))))
        sign = self._of((">", ">=", "<", "<="))
        forms = (
            f"F.where({x} {sign} {border}, {first}, {second})",
            f"({x} {sign} {border}).to(DTYPE)",
            f"F.topk({x}, {self._draw(st.integers(1, size))})[0]",
            f"F.embedding(F.argmax({x}, -1), {table})",
            f"F.embedding(F.clamp(F.argmax({x}, -1) * 2 - 1, 0, {size - 1}), {table})",
            f"(F.argmax({x}, -1) - 1).to(DTYPE)",
            f"F.maximum(F.argmax({x}, -1), F.argmax({border}, -1)).to(DTYPE)",
        )
        name = self._sketch.new()
        self._sketch.keep(f"{name} = {self._of(forms)}", name)

    # -- operands ---------------------------------------------------------------------------

    def operands(self, op: type[Op], declared: Declared) -> dict[str, str] | None:
        """Expressions for the inputs of an operator, by name; None where none are found.

        One tensor is drawn, and the others get the shapes that the declared case then asks for.
        """
        kinds = {made.name: made.kind for made in op.inputs}
        tensors = {n: s for n, s in declared.shapes.items() if kinds[n] is not Kind.INDEX}
        lead = max(tensors, key=lambda name: len(tensors[name]))
        first = self._of_rank(len(tensors[lead]))
        if first is None:
            return None
        sizes = dict(zip(tensors[lead], self._sketch.shape(first), strict=True))
        chosen = {lead: first}
        for name, dims in declared.shapes.items():
            if name != lead:
                shape = tuple(self._size(sizes, dim) for dim in dims)
                chosen[name] = self._other(kinds[name], shape, chosen)
        shapes = {name: self._sketch.shape(text) for name, text in chosen.items()}
        if any(math.prod(shape) > MOST_ELEMENTS for shape in shapes.values()):
            return None
        values = self._scalars(op(**declared.attributes), shapes, list(declared.values))
        return None if values is None else chosen | values

    def _size(self, sizes: dict[int, int], dim: int) -> int:
        if dim not in sizes:
            sizes[dim] = dim if dim <= EXAMPLE else self._of(DIMS)
        return sizes[dim]

    def _other(self, kind: Kind, shape: Shape, chosen: Mapping[str, str]) -> str:
        seed = self._draw(st.integers(0, 3))
        if kind is Kind.INDEX:
            entries = self._sketch.shape(next(iter(chosen.values())))[0]
            return self._sketch.weight(
                f"np.random.default_rng({seed}).integers(0, {entries}, {shape}, np.int32)"
            )
        if shape == ():
            return self._of(("0.5", "-1.0", "2.0"))
        return self._of(list(self._of_shape(shape)))

    def _scalars(
        self, op: Op, shapes: Mapping[str, Shape], names: Sequence[str]
    ) -> dict[str, str] | None:
        """Values for an operator's per-call integers that it takes at any call."""
        literals = [str(i) for i in range(max(map(max, filter(None, shapes.values())), default=1))]
        chosen: dict[str, str] = {}
        for name in names:
            fits = [
                text
                for text in [*self._values(), *literals]
                if self._takes(op, shapes, {**chosen, name: text})
            ]
            if not fits:
                return None
            chosen[name] = self._of(fits)
        return chosen

    def _takes(self, op: Op, shapes: Mapping[str, Shape], chosen: Mapping[str, str]) -> bool:
        for call in self._calls():
            given = {name: [eval(text, {}, dict(call))] for name, text in chosen.items()}
            try:
                op.check_call(shapes, given)
            except (KeyError, ValueError):
                # A range may need an integer that is not chosen yet; the front end checks again.
                return False
        return True

    def _calls(self) -> Iterator[dict[str, int]]:
        """Every combination of the per-call values that a call may give."""
        values = self._sketch.values
        for numbers in itertools.product(*(range(most + 1) for most in values.values())):
            yield dict(zip(values, numbers, strict=True))

    # -- expressions ------------------------------------------------------------------------

    def _tensors(self) -> list[str]:
        return self._sketch.tensors[::-1]

    def _values(self) -> list[str]:
        return [form.format(n) for n in self._sketch.values for form in ("{}", "{} + 1", "{} // 2")]

    def _operand(self, expression: str) -> str:
        """The expression, copied where only a copy takes it."""
        return f"{expression}.copy()" if self._sketch.view(expression) else expression

    def _of_rank(self, rank: int) -> str | None:
        """A tensor of so many axes."""
        found = []
        for tensor in self._tensors():
            shape = self._sketch.shape(tensor)
            if len(shape) == rank:
                found.append(tensor)
            elif not self._sketch.view(tensor):
                found += [t for t in self._shapes(tensor, shape) if t.count(",") + 1 == rank]
        return self._of(found[:8]) if found else None

    def _of_shape(self, shape: Shape) -> Iterator[str]:
        """Expressions of tensors of a shape: at least a new weight."""
        count = 0
        for tensor in self._tensors():
            has = self._sketch.shape(tensor)
            if has == shape:
                yield self._operand(tensor)
            elif len(has) == len(shape) == 2 and has[::-1] == shape:
                yield f"{tensor}.T.copy()"
            elif math.prod(has) == math.prod(shape):
                yield f"{self._operand(tensor)}.reshape({', '.join(map(str, shape))})"
            elif len(has) == len(shape) and all(h >= s for h, s in zip(has, shape, strict=True)):
                last = [f"{h - s}:{h}" for h, s in zip(has, shape, strict=True)]
                yield self._operand(f"{tensor}[{', '.join(last)}]")
            else:
                continue
            count += 1
            if count == 6:
                break
        seed = self._draw(st.integers(0, 9))
        yield self._sketch.weight(f'filled("normal", {seed}, {shape}, DTYPE)')

    def _parts(self, tensor: str, shape: Shape) -> list[str]:
        """Regions of a tensor, along one axis or two."""
        if not shape:
            return []
        axis = self._draw(st.integers(0, len(shape) - 1))
        size, before = shape[axis], ":, " * axis
        start = self._draw(st.integers(0, size - 1))
        stop = self._draw(st.integers(start + 1, size))
        parts = [f"{tensor}[{before}{start}:{stop}]", f"{tensor}[{before}{start}]"]
        for value in self._values():
            most = max(eval(value, {}, call) for call in self._calls())
            if most < size:
                parts.append(f"{tensor}[{before}{value}]")
                parts.append(f"{tensor}[{before}{value} : {value} + {size - most}]")
        if axis:
            first = self._draw(st.integers(0, shape[0] - 1))
            rest = ":, " * (axis - 1)
            parts.append(f"{tensor}[{first}, {rest}{start}:{stop}]")
        return parts

    def _shapes(self, tensor: str, shape: Shape) -> list[str]:
        """Other shapes of a tensor, and its axes in another order."""
        count = math.prod(shape)
        factor = self._of([n for n in range(1, count + 1) if count % n == 0] or [1])
        source = self._operand(tensor)
        made = [f"{source}.reshape({count})", f"{source}.reshape({factor}, {count // factor})"]
        made.append(f"{source}.reshape({', '.join(map(str, (*shape[:1], 1, *shape[1:])))})")
        if len(shape) > 1:
            order = self._draw(st.permutations(range(len(shape))))
            made.append(f"{tensor}.transpose({', '.join(map(str, order))})")
        return made


def spelled(op: type[Op], operands: Mapping[str, str], attributes: Mapping[str, Any]) -> str:
    """A step as a user writes it: an arithmetic sign, a function, or the operator by its name."""
    ufunc: Any = vars(op).get("ufunc")
    symbol = SYMBOLS.get(ufunc)
    if symbol is not None:
        return f" {symbol} ".join(operands[made.name] for made in op.inputs)
    given = {**operands, **{name: _literal(value) for name, value in attributes.items()}}
    function = getattr(F, op.file, None)
    if callable(function) and not op.updates and op.stem == op.file:
        arguments, rest = [], dict(given)
        for name in inspect.signature(function).parameters:
            known = ALIASES.get(name, name)
            if name == "normalized_shape":
                arguments.append(f"{name}={given['x']}.shape[-1]")
            elif known in rest:
                arguments.append(f"{name}={rest.pop(known)}")
        if not rest:
            return f"F.{op.file}({', '.join(arguments)})"
    arguments = [f"{name}={text}" for name, text in given.items()]
    steps = "steps" if len(op.outputs) > 1 else "step"
    return f"OPERATORS[{op.name!r}].{steps}({', '.join(arguments)})"


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({''.join(f'{_literal(v)}, ' for v in value)})"
    return repr(str(value)) if isinstance(value, str) else repr(value)
