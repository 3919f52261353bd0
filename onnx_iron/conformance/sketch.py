"""A body while it is drawn: each statement is tried on handles before it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx_iron.conformance.programs import IMPORTS, Program, source
from onnx_iron.dtypes import Array, Shape, as_dtype
from onnx_iron.graph import Handle, Role, State, Trace
from onnx_iron.graph.context import active
from onnx_iron.graph.graph import named_parts
from onnx_iron.graph.reference import run_reference

# Numbers stay between, so that errors stay small beside them.
SMALLEST, LARGEST = 2.0**-20, 2.0**20


class Refused(Exception):  # noqa: N818 - a drawn expression that is not to be
    """The front end does not take an expression."""


class _Parts:
    """Stands for the graph: what ``self`` is in a body."""


@dataclass
class Sketch:
    """What is drawn so far.

    Attributes:
        dtype: its name.
        inputs: shapes by name.
        states: constructors by name, such as ``state((2, 3), DTYPE)``.
        values: for each per-call value the greatest that a call may give; the least is 0.
        batch: what ``BATCH`` is in expressions, the number of sequences.
        tensors: expressions of handles and states that later statements may read, oldest first.
    """

    dtype: str
    inputs: Mapping[str, Shape]
    states: Mapping[str, str]
    values: Mapping[str, int]
    batch: int = 1
    tensors: list[str] = field(default_factory=list)
    _body: list[str] = field(default_factory=list)
    _parts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names: dict[str, Any] = {"DTYPE": as_dtype(self.dtype), "self": _Parts()}
        self._names["BATCH"] = self.batch
        exec(IMPORTS, self._names)
        for name, constructor in self.states.items():
            self.part(name, constructor)
        self._trace = Trace(dict(named_parts(self._names["self"])))
        for name, shape in self.inputs.items():
            self._names[name] = self._trace.input(name, shape, as_dtype(self.dtype))
        for name in self.values:
            self._names[name] = self._trace.value(name)
        held = [f"self.{n}" for n in self.states if isinstance(self._part(n), State)]
        self.tensors = [*held, *self.inputs]

    def part(self, name: str, constructor: str) -> str:
        """Make a weight or a state; returns the expression that reads it."""
        setattr(self._names["self"], name, eval(constructor, self._names))
        self._parts[name] = f"self.{name} = {constructor}"
        return f"self.{name}"

    def weight(self, constructor: str) -> str:
        """Make a weight under a new name."""
        return self.part(f"w{len(self._parts)}", constructor)

    def _part(self, name: str) -> Any:
        return getattr(self._names["self"], name)

    def look(self, expression: str) -> Any:
        """What an expression is: a handle, a state, a per-call value.

        Raises:
            Refused: by the front end.
        """
        token, steps = active.set(self._trace), len(self._trace.steps)
        try:
            return eval(expression, self._names)
        except (IndexError, TypeError, ValueError) as error:
            raise Refused(expression) from error
        finally:
            active.reset(token)
            del self._trace.steps[steps:]  # a copy() that is only looked at

    def shape(self, expression: str) -> Shape:
        """An expression's shape; a number has none."""
        return tuple(getattr(self.look(expression), "shape", ()))

    def view(self, expression: str) -> bool:
        """Whether only a copy takes it."""
        return getattr(self.look(expression), "role", None) is Role.VIEW

    def keep(self, statement: str, *made: str) -> bool:
        """Add a statement, unless the front end refuses it or its numbers leave the range.

        Args:
            statement: one line.
            made: the names that it gives to new handles.
        """
        token, steps = active.set(self._trace), len(self._trace.steps)
        try:
            exec(statement, self._names)
            kept = self._computes(self._trace)
        except (IndexError, TypeError, ValueError):
            kept = False
        finally:
            active.reset(token)
        if not kept:
            del self._trace.steps[steps:]
            for name in made:
                self._names.pop(name, None)
            return False
        self._body.append(statement)
        self.tensors += made
        return True

    def new(self) -> str:
        """A name for a handle."""
        return f"h{len(self._body)}"

    def results(self) -> Iterator[str]:
        """The names of the handles that a body may return, newest first."""
        for name in reversed(self.tensors):
            handle = self._names.get(name)
            if not isinstance(handle, Handle) or not handle.whole:
                continue
            if handle.base.role is Role.INTERMEDIATE:
                yield name

    def program(
        self, returned: Sequence[str], calls: Sequence[Mapping[str, int]], kind: str
    ) -> Program:
        """The body with its outputs, without the weights, states and values that it never names."""
        pairs = ", ".join(f'"{name}": {name}' for name in returned)
        body = [*self._body, f"return {{{pairs}}}"]
        used = set(re.findall(r"\w+", "\n".join(body)))
        parts = [line for name, line in self._parts.items() if name in used]
        values = [name for name in self.values if name in used]
        given = tuple({name: call[name] for name in values} for call in calls)
        text = source(parts, list(self.inputs), values, body)
        return Program(text, self.dtype, dict(self.inputs), given, kind, self.batch)

    def _computes(self, trace: Trace) -> bool:
        """Whether calls with normal numbers, and the least and greatest values, leave them in the
        range."""
        random = np.random.default_rng(0)
        arrays = {
            name: random.standard_normal(h.shape).astype(np.float32).astype(h.dtype)
            for name, h in trace.inputs.items()
        }
        states = {
            name: random.standard_normal(s.shape).astype(np.float32).astype(s.dtype)
            for name, s in trace.states.items()
            if not s.scratch
        }
        found: list[bool] = []

        def compute(op: Any, operands: Sequence[Any]) -> Any:
            results = op.reference(*operands)
            found.extend(_in_range(r) for r in (results if type(results) is tuple else (results,)))
            return results

        for values in (dict.fromkeys(self.values, 0), dict(self.values)):
            run_reference(trace, arrays, values, dict(states), compute)
        return all(found)


def _in_range(array: Array) -> bool:
    wide = np.abs(np.asarray(array).astype(np.float64))
    numbers = wide[wide != 0]
    return bool(np.all(np.isfinite(wide)) and np.all((numbers < LARGEST) & (numbers > SMALLEST)))
