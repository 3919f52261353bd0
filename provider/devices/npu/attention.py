"""Attention of one row as two of a decoder's steps: parts are gathered, then merged."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnx_iron.dtypes import BFLOAT16, INT32, Array, Spec
from onnx_iron.kernels.designs.decode_attention import Parts, gather
from onnx_iron.kernels.designs.design import Access, Design, Port, Refusal, Scalar
from onnx_iron.kernels.designs.target import Target
from onnx_iron.operators.arithmetic import Add, Div
from onnx_iron.operators.attention import Attention
from onnx_iron.provider.lowering import KernelCall, Lowering
from onnx_iron.provider.operator import Operator
from onnx_iron.provider.subgraph import Subgraph


@dataclass(frozen=True)
class Gathering:
    """What gathers an attention's parts.

    Attributes:
        attention: the step.
        seen, rounds: how many entries of the cache the row sees, and in how many rounds they are.
        described: what the kernel is told.
        states: what it gathers.
    """

    attention: KernelCall
    parts: Parts
    seen: str
    rounds: str
    described: str
    states: str

    @property
    def operands(self) -> list[str]:
        """The design's buffers as values."""
        query, key, value = map(str, self.attention.inputs[:3])
        return [query, self.seen, self.rounds, self.described, key, value, self.states]

    @property
    def counts(self) -> dict[str, tuple[str, int]]:
        """The design's per-call values."""
        return {"rounds": (self.rounds, 0)} if self.parts.counted else {}

    def step(self) -> KernelCall:
        """What it reads and writes."""
        *read, written = self.operands
        return KernelCall(self.attention.name, self.attention.op, list(read), [written])

    def design(self, lowering: Lowering, target: Target) -> Design | Refusal:
        """What runs it."""
        names = ("query", "seen", "rounds", "described", "key", "value", "states")
        ports = {}
        for name, value in zip(names, self.operands, strict=True):
            spec, access = lowering.specs[value], Access.WRITE if name == "states" else Access.READ
            ports[name] = Port(name, spec.dtype.name, spec.shape, access)
        # The count is the same number as the operand, which goes by the same name.
        rounds = Scalar("rounds", 1, self.parts.rounds) if self.parts.counted else None
        return gather(self.parts, ports, target, rounds)


class Gatherings:
    """Those of a subgraph, by the attention's id; the steps that count for them are put into it."""

    def __init__(self, subgraph: Subgraph, target: Target) -> None:
        self._lowering, self._target = subgraph.lowering, target
        self._kept: dict[object, str] = {}
        self._found: dict[int, Gathering] = {}
        steps: list[KernelCall] = []
        for step in subgraph.steps:
            self._name, self._before = step.name, list[KernelCall]()
            made = self._gathering(step)
            if made is not None:
                self._found[id(step)] = made
                steps += self._before
            steps.append(step)
        subgraph.steps[:] = steps

    def of(self, attention: KernelCall) -> Gathering | None:
        """An attention's, or None where its own design takes it, or nothing does."""
        return self._found.get(id(attention))

    def _gathering(self, step: KernelCall) -> Gathering | None:
        parts = attention_parts(step, self._lowering, self._target)
        if parts is None or parts.refused() is not None:
            return None
        lowering, attributes = self._lowering, step.op.attributes()
        position, valid = (*step.inputs[3:5], None, None)[:2]
        described = parts.described(float(attributes.get("scale", 1 / math.sqrt(parts.dim))))
        if attributes["is_causal"]:
            before = self._number(0) if position is None else position
            seen = self._computed(Add(), before, self._number(1))
        else:
            before = None
            seen = self._number(parts.entries) if valid is None else valid
        if not parts.counted or seen == self._number(parts.entries):
            rounds = self._number(parts.rounds)
        else:
            if before is None:
                before = self._computed(Add(), seen, self._number(-1))
            rounds = self._computed(
                Add(),
                self._computed(Div(), before, self._number(parts.every)),
                self._number(1),
            )
        states = lowering.fresh(step.outputs[0], Spec((parts.state,), BFLOAT16))
        return Gathering(step, parts, seen, rounds, self._literal(described), states)

    def _number(self, number: int) -> str:
        return self._literal(np.array(number, INT32))

    def _literal(self, array: Array) -> str:
        """The value that holds an array, one for all that are equal."""
        key = array.tobytes(), array.dtype, array.shape
        if key not in self._kept:
            spec = Spec(array.shape, array.dtype)
            self._kept[key] = self._lowering.fresh("literal", spec)
            self._lowering.literals[self._kept[key]] = array
        return self._kept[key]

    def _computed(self, op: Operator, a: str, b: str) -> str:
        """A number that the host computes once for all attentions that need it."""
        key = op, a, b
        if key not in self._kept:
            self._kept[key] = self._lowering.fresh(a, Spec((), INT32))
            self._before.append(KernelCall(self._name, op, [a, b], [self._kept[key]]))
        return self._kept[key]


def attention_parts(step: KernelCall, lowering: Lowering, target: Target) -> Parts | None:
    """How an attention's cache is over the columns; None where it is no decoder's."""
    if not isinstance(step.op, Attention) or None in step.inputs[:3]:
        return None
    query, key, value = (lowering.specs[str(name)] for name in step.inputs[:3])
    given = step.op.attributes()
    position, valid, *others = (*step.inputs[3:], None, None)
    plain = not any(name is not None for name in others)
    numbers = [name for name in (position, valid) if name is not None]
    if (
        len(query.shape) != 3
        or query.shape[0] != 1
        or key.shape[2] != value.shape[2]
        or any(spec.dtype != BFLOAT16 for spec in (query, key, value))
        or any(lowering.specs[name] != Spec((), INT32) for name in numbers)
        or not plain
        or (given["is_causal"] and valid is not None)
        or set(given) - {"is_causal", "scale"}
    ):
        return None
    (_, heads, dim), (entries, groups, _) = query.shape, key.shape
    return Parts(target.columns, heads, groups, dim, entries)
