"""Nodes become steps: calls of a kernel, and views of a value that need none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from onnx_iron.dtypes import UINT8, Array, DType, Shape, Spec
from onnx_iron.provider.graph import GraphDescription, Node, ValueInfo
from onnx_iron.provider.operator import Operator

MOST_BYTES = 1 << 47


class Difference(NamedTuple):
    """A size that would have to be another one.

    Attributes:
        input: whose it is, by number; None is any that has it.
        axis: where, from the end.
        have: the size.
        wanted: the one that would do.
    """

    input: int | None
    axis: int
    have: int
    wanted: int


class Refused(Exception):  # noqa: N818 - a refusal is an answer, caught where a node is lowered
    """Why a node can't be run.

    Attributes:
        differences: where the reason is that sizes differ, which: some may be guesses.
    """

    def __init__(self, reason: str = "", differences: Sequence[Difference] = ()) -> None:
        super().__init__(reason)
        self.differences = differences


class Slower(Refused):
    """A node that could be run, and that onnxruntime's own kernel runs faster."""


@dataclass
class KernelCall:
    """One call of a kernel. An omitted input is None."""

    name: str
    op: Operator
    inputs: list[str | None]
    outputs: list[str]


@dataclass(frozen=True)
class View:
    """A value that is a part of another's bytes."""

    base: str
    offset: int


@dataclass
class Lowering:
    """What nodes have become so far.

    Attributes:
        specs: dtype and shape of every value met.
        integers: contents of the small integer constants, and of shapes.
        guessed: values whose shape or contents are guesses: while a graph's nodes are claimed, some
            size stands for each dimension that only a call knows. A rule may not decide by them
            what is valid for other sizes too: a rank, say.
        declared: what the model says of the guessed values' shapes.
        claiming: whether nodes are tried, and may still be left to onnxruntime.
        steps: calls of kernels, in order.
        views: values without bytes of their own.
        literals: constants that the program itself brings.
    """

    specs: dict[str, Spec] = field(default_factory=dict)
    integers: MutableMapping[str, Array] = field(default_factory=dict)
    guessed: Collection[str] = ()
    declared: Mapping[str, ValueInfo] = field(default_factory=dict)
    claiming: bool = False
    steps: list[KernelCall] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    literals: dict[str, Array] = field(default_factory=dict)

    def fresh(self, like: str, spec: Spec) -> str:
        """A new value's name; its NUL keeps it apart from every name in a model."""
        name = f"{like}\0{len(self.specs)}"
        self.specs[name] = spec
        return name

    def resolve(self, name: str) -> tuple[str, int]:
        """The value whose bytes hold this one, and where in them it begins."""
        passed = []
        root = name
        while root in self.views:
            passed.append(root)
            root = self.views[root].base
        # Each view met is made one of the root itself, so that a chain is walked once.
        offset = 0
        for view in reversed(passed):
            offset += self.views[view].offset
            self.views[view] = View(root, offset)
        return root, offset


class Operation:
    """A node that is being lowered: what a rule reads from, and writes to."""

    def __init__(self, node: Node, lowering: Lowering) -> None:
        self.node = node
        self._lowering = lowering

    # -- what the node has ------------------------------------------------------------------

    @property
    def input_count(self) -> int:
        """Number of inputs, without omitted ones at the end."""
        names = self.node.inputs
        while names and not names[-1]:
            names = names[:-1]
        return len(names)

    @property
    def output_count(self) -> int:
        """Number of outputs, without omitted ones at the end."""
        names = self.node.outputs
        while names and not names[-1]:
            names = names[:-1]
        return len(names)

    def has(self, index: int) -> bool:
        """Whether the node has this input."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def input(self, index: int) -> str:
        """The name of an input that must be there."""
        if not self.has(index):
            self.refuse(f"input {index} is missing")
        return self.node.inputs[index]

    def spec(self, index: int) -> Spec:
        """Dtype and shape of an input."""
        name = self.input(index)
        spec = self._lowering.specs.get(name)
        if spec is None:
            self.refuse(f"dtype or rank of input '{name}' is not known, or no kernel has it")
        self.require(spec.dtype != UINT8, f"input '{name}' is uint8")
        return spec

    def codes(self, index: int) -> Spec:
        """Dtype and shape of an input that may be bytes: quantized weights, their zero points."""
        return self._lowering.specs.get(self.input(index)) or self.spec(index)

    def integers(self, index: int, attribute: str = "") -> list[int] | None:
        """The elements of a constant integer input, or of the attribute that older opsets have in
        its place; None where the node has neither."""
        if self.has(index):
            name = self.node.inputs[index]
            if name not in self._lowering.integers:
                self.refuse(
                    f"input {index} '{name}' is no small integer constant, nor made of shapes that "
                    "the same group of nodes has"
                )
            found: list[int] = self._lowering.integers[name].reshape(-1).tolist()
            return found
        given = self.node.attributes.get(attribute) if attribute else None
        return None if given is None else [int(i) for i in given]

    def axes(self, index: int) -> list[int] | None:
        """The axes in a constant integer input, or in the attribute of older opsets."""
        axes = self.integers(index, "axes")
        given = axes is not None and self.has(index)
        self.require(not (given and self.is_guess(index)), "its axes are known only when it runs")
        return axes

    def is_guess(self, index: int) -> bool:
        """Whether an input's shape or contents stand for others too."""
        return self.input(index) in self._lowering.guessed

    def is_open(self, index: int, axis: int | None = None) -> bool:
        """Whether an input's shape, or one of its dimensions, stands for others too; its contents
        may, all the same."""
        if not self.is_guess(index):
            return False
        value = self._lowering.declared.get(self.input(index))
        if value is None or value.dims is None or not value.dims:
            return value is None or value.dims is None
        dims = value.dims if axis is None else (value.dims[axis],)
        return not all(isinstance(dim, int) for dim in dims)

    def attribute(self, name: str, otherwise: Any = None) -> Any:
        """The value of an attribute."""
        return self.node.attributes.get(name, otherwise)

    def axis(self, default: int, rank: int) -> int:
        """The attribute ``axis``, counted from the front."""
        return self.axis_of("axis", default, rank)

    def axis_of(self, attribute: str, default: int, rank: int) -> int:
        """An attribute that is an axis, counted from the front."""
        return self.from_front(int(self.attribute(attribute, default)), rank)

    def from_front(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            self.refuse(f"axis {axis} is out of range for rank {rank}")
        return axis % rank

    def refuse(self, reason: str, differences: Sequence[Difference] = ()) -> NoReturn:
        """Give the node up; where sizes differ, say which."""
        raise Refused(reason, differences)

    def leave_if(self, slower: bool, reason: str) -> None:
        """Leave the node to onnxruntime, while there is a choice, where its kernel is faster."""
        if slower and self._lowering.claiming:
            raise Slower(f"onnxruntime's own kernel is faster {reason}")

    def require(self, holds: bool, reason: str) -> None:
        """Give the node up unless a condition holds."""
        if not holds:
            raise Refused(reason)

    # -- what it becomes --------------------------------------------------------------------

    def output(self, spec: Spec, index: int = 0) -> str:
        """The name of an output, which gets its type; a fresh one where the node omits it."""
        self.require(spec.bytes < MOST_BYTES, f"an output is {spec}: too big")
        names = self.node.outputs
        if index < len(names) and names[index]:
            self._lowering.specs[names[index]] = spec
            return names[index]
        return self._lowering.fresh(self.node.name or self.node.op_type, spec)

    def temporary(self, spec: Spec) -> str:
        """A value between two steps of this node."""
        return self._lowering.fresh(self.node.name or self.node.op_type, spec)

    def viewed(self, base: str, shape: Shape) -> str:
        """Another value's bytes in another shape, between two steps of this node."""
        name = self.temporary(Spec(shape, self._lowering.specs[base].dtype))
        self._lowering.views[name] = View(base, 0)
        return name

    def known(self, index: int) -> Array | None:
        """The integers in an input, where they are known; some may be symbols."""
        return self._lowering.integers.get(self.input(index))

    def literal(self, array: Array, dtype: DType | None = None) -> str:
        """A constant of the program's own; ``dtype`` where symbols are in the array."""
        array = np.ascontiguousarray(array)
        name = self._lowering.fresh("literal", Spec(array.shape, dtype or array.dtype))
        self._lowering.literals[name] = array
        if array.dtype.kind in "iOb":
            self._lowering.integers[name] = array
        return name

    def step(self, op: Operator, inputs: Sequence[str | None], outputs: Sequence[str]) -> None:
        """Call a kernel."""
        name = self.node.name or self.node.outputs[0]
        self._lowering.steps.append(KernelCall(name, op, list(inputs), list(outputs)))

    def view(self, base: str, shape: Shape, offset: int = 0, index: int = 0) -> None:
        """Make an output a part of another value's bytes."""
        output = self.output(Spec(shape, self._lowering.specs[base].dtype), index)
        self._lowering.views[output] = View(base, offset)
        if base in self._lowering.integers and offset == 0:
            whole = self._lowering.integers[base]
            if whole.size == Spec(shape, whole.dtype).elements:
                self._lowering.integers[output] = whole.reshape(shape)


def start(graph: GraphDescription) -> Lowering:
    """A lowering that knows the contents of the graph's integer constants."""
    integers = {v.name: v.data for v in graph.values.values() if v.data is not None}
    return Lowering(integers=integers)
