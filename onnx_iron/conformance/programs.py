"""A drawn graph as its user would have written it: the source, the calls, and a script of both."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_iron.conformance.case import Call, Case
from onnx_iron.conformance.error_bounds import bounded_results
from onnx_iron.conformance.expected import Results
from onnx_iron.conformance.values import filled
from onnx_iron.dtypes import Array, Shape, as_dtype
from onnx_iron.graph import Graph, Trace
from onnx_iron.operators.declaration import Tolerance

# What the errors that the steps' own tolerances allow can move a result by is measured on a few
# runs only, so that it may be several times as much; how near implementations come isn't measured.
TOLERANCE = Tolerance(0, 0, "what the tolerances of its steps come to", of_magnitude=4.0)

IMPORTS = """\
import numpy as np

from onnx_iron import functional as F
from onnx_iron.conformance.values import filled
from onnx_iron.graph import OPERATORS, Graph, state
"""


@dataclass(frozen=True)
class Program:
    """A graph in Python, and calls of it.

    Attributes:
        source: the class ``Drawn``, with ``DTYPE`` for its tensors' dtype and ``BATCH`` for the
            number of its sequences; after :data:`IMPORTS`.
        dtype: that dtype's name.
        inputs: shapes by name.
        calls: the per-call values of each call.
        kind: what its inputs are like, one of ``values.FILLS``.
        batch: the number of sequences, the inputs' first axis, where it is made for several.
    """

    source: str
    dtype: str
    inputs: Mapping[str, Shape]
    calls: tuple[Mapping[str, int], ...]
    kind: str = "normal"
    batch: int = 1

    def script(self, check: str, *arguments: object) -> str:
        """A script that ends with an error as long as a property of this program does not hold.

        Args:
            check: a function's name in :mod:`onnx_iron.conformance.properties`.
            arguments: what it takes after the program.
        """
        given = ", ".join(["program", *map(repr, arguments)])
        return (
            "import inspect\n\n"
            f"{IMPORTS}"
            "from onnx_iron.conformance import properties\n"
            "from onnx_iron.conformance.programs import Program\n"
            "from onnx_iron.dtypes import as_dtype\n\n"
            f"DTYPE, BATCH = as_dtype({self.dtype!r}), {self.batch}\n\n\n"
            f"{self.source}\n\n"
            "program = Program(\n"
            "    source=inspect.getsource(Drawn),\n"
            f"    dtype={self.dtype!r},\n"
            f"    inputs={dict(self.inputs)!r},\n"
            f"    calls={tuple(map(dict, self.calls))!r},\n"
            f"    kind={self.kind!r},\n"
            f"    batch={self.batch},\n"
            ")\n"
            f"properties.{check}({given})\n"
            'print("it holds")\n'
        )

    def with_rows(self, rows: int, calls: Iterable[Mapping[str, int]]) -> Program:
        """The same body for inputs of another number of rows, with other calls."""
        inputs = {name: (rows, *shape[1:]) for name, shape in self.inputs.items()}
        return dataclasses.replace(self, inputs=inputs, calls=tuple(calls))

    def of_one(self) -> Program:
        """The same body for one sequence, a batch of one."""
        inputs = {name: (1, *shape[1:]) for name, shape in self.inputs.items()}
        return dataclasses.replace(self, inputs=inputs, batch=1)

    def graph(self) -> Graph:
        """A new graph of the class."""
        names: dict[str, Any] = {"DTYPE": as_dtype(self.dtype), "BATCH": self.batch}
        exec(f"{IMPORTS}\n{self.source}", names)
        made: Graph = names["Drawn"]()
        return made

    def traced(self) -> Trace:
        """The graph's steps."""
        dtype = as_dtype(self.dtype)
        return self.graph().trace(**{name: (shape, dtype) for name, shape in self.inputs.items()})

    def arrays(self, call: int) -> dict[str, Array]:
        """The inputs of a call, the same each time."""
        return {
            name: filled(self.kind, 100 * call + number, shape, as_dtype(self.dtype))
            for number, (name, shape) in enumerate(self.inputs.items())
        }

    def case(self, arrays: Iterable[Mapping[str, Array]] | None = None) -> DrawnCase:
        """The program as a case of the suite, with its own inputs or with those given."""
        given = [self.arrays(i) for i in range(len(self.calls))] if arrays is None else arrays
        return DrawnCase(
            name="a drawn graph",
            subject="drawn graphs",
            dtype=as_dtype(self.dtype),
            make=functools.partial(Program.traced, self),
            calls=tuple(
                Call(self.kind, inputs, values)
                for inputs, values in zip(given, self.calls, strict=True)
            ),
            tolerance=TOLERANCE,
        )


class DrawnCase(Case):
    """A case whose magnitudes are what its steps' tolerances come to at its results."""

    @functools.cached_property
    def expected(self) -> tuple[Results, ...]:
        """For each call the outputs, and the states as ``present.<name>``."""
        return bounded_results(self.trace, self.calls)


def source(
    parts: Sequence[str], inputs: Sequence[str], values: Sequence[str], body: Sequence[str]
) -> str:
    """The class ``Drawn`` of these statements of ``__init__`` and ``body``."""
    arguments = ", ".join(["self", *inputs, *(["*", *values] if values else [])])
    return "\n".join(
        [
            "class Drawn(Graph):",
            "    def __init__(self):",
            *(f"        {line}" for line in parts or ("pass",)),
            "",
            f"    def body({arguments}):",
            *(f"        {line}" for line in body),
            "",
        ]
    )


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays have the same shape, dtype and bits; a NaN is any other."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    nan = np.isnan(one.astype(np.float64)) & np.isnan(other.astype(np.float64))
    number = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[one.dtype.itemsize]
    bits = [np.ascontiguousarray(a).reshape(-1).view(number) for a in (one, other)]
    return bool(np.all((bits[0] == bits[1]) | nan.reshape(-1)))
