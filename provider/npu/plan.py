"""A subgraph's plan for the NPU: which steps it runs, in which segments, and where values live."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from onnx_iron.kernels.designs.design import Role
from onnx_iron.kernels.designs.device import Device
from onnx_iron.operators import OPERATORS
from onnx_iron.provider.fusion import drop_copies
from onnx_iron.provider.graph import Graph
from onnx_iron.provider.lowering import Lowering, Step, View
from onnx_iron.provider.npu.artifacts import Artifact, artifact
from onnx_iron.provider.npu.choose import Choice, choose
from onnx_iron.provider.program import lower_graph
from onnx_iron.provider.schedule import schedule
from onnx_iron.provider.specs import BFLOAT16, INT32, Shape, Spec

ALIGNMENT = 64


class Kind(Enum):
    """Where a root's bytes are."""

    INPUT = "input"
    CONSTANT = "constant"  # an input that never changes
    LITERAL = "literal"  # a constant of the program's own
    OUTPUT = "output"
    ARENA = "arena"


@dataclass(frozen=True)
class Home:
    """Where a root's bytes are; ``index`` of an input or output, ``offset`` in the arena."""

    kind: Kind
    index: int = 0
    offset: int = 0


@dataclass
class Work:
    """A step, and who does it.

    Attributes:
        artifact: the design, where the NPU does it.
        reason: why the host does.
        natural: the host does it by nature.
        operands: the design's buffers as the step's values, in the design's order.
        written: which of these the NPU writes.
        values: the design's per-call values by name: a scalar value and the element's index.
    """

    step: Step
    artifact: Artifact | None = None
    reason: str = ""
    natural: bool = False
    operands: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    values: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def on_npu(self) -> bool:
        """Whether the NPU does it."""
        return self.artifact is not None


@dataclass
class Segment:
    """Steps that go out together: to the NPU as one run list, or to the host."""

    on_npu: bool
    work: list[Work]


@dataclass
class Plan:
    """The whole subgraph.

    Attributes:
        pairs: (input, output) numbers that may be one buffer.
        updates: those of them where the NPU writes a part of the input anew.
    """

    lowering: Lowering
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    segments: list[Segment]
    homes: Mapping[str, Home]
    arena_bytes: int
    pairs: set[tuple[int, int]]
    updates: set[tuple[int, int]]

    @property
    def work(self) -> list[Work]:
        """All steps in order."""
        return [work for segment in self.segments for work in segment.work]

    @property
    def runs(self) -> int:
        """How many designs a call runs."""
        return sum(work.on_npu for work in self.work)


def make_plan(
    graph: Graph, shapes: Sequence[Shape], device: Device, simulator: bool, *, any_artifact: bool
) -> Plan:
    """Plan a claimed subgraph for its inputs' shapes.

    Args:
        any_artifact: take designs whose artifacts aren't built; else the host does those steps.

    Raises:
        CompileError: a node that these shapes do not fit, by name.
    """
    lowering, constant = lowered(graph, shapes)
    plan = schedule(lowering, graph.inputs, constant, graph.outputs)
    literals = set(lowering.literals)
    work = [assign(step, lowering, device, simulator, any_artifact) for step in plan.steps]
    work = with_copies(
        work,
        lowering,
        lambda step: assign(step, lowering, device, simulator, any_artifact),
        plan.placed,
        graph.inputs,
        plan.pairs,
    )
    segments = cut(work, lowering, plan.placed, plan.pairs, graph.inputs)
    homes: dict[str, Home] = {}
    for number, name in enumerate(graph.inputs):
        homes[name] = Home(Kind.CONSTANT if constant[number] else Kind.INPUT, number)
    homes.update({name: Home(Kind.LITERAL) for name in literals})
    homes.update({root: Home(Kind.OUTPUT, number) for root, number in plan.placed.items()})
    offsets, size = arena([w for s in segments for w in s.work], lowering, homes)
    homes.update({root: Home(Kind.ARENA, offset=offset) for root, offset in offsets.items()})
    pairs = set(plan.pairs)
    return Plan(
        lowering=lowering,
        inputs=graph.inputs,
        outputs=graph.outputs,
        segments=segments,
        homes=homes,
        arena_bytes=size,
        pairs=pairs,
        updates=updates(work, lowering, homes, pairs),
    )


def lowered(graph: Graph, shapes: Sequence[Shape]) -> tuple[Lowering, list[bool]]:
    """The subgraph's steps, and which of its inputs never change.

    Raises:
        CompileError: a node that these shapes do not fit, by name.
    """
    lowering, constant = lower_graph(graph, shapes)
    drop_copies(lowering)
    round_angles(lowering)
    take_whole_rows(lowering)
    return lowering, constant


def round_angles(lowering: Lowering) -> None:
    """RoPE's kernel takes bfloat16 angles: the host rounds float32 ones, once for all readers."""
    rounded: dict[str, str] = {}
    steps: list[Step] = []
    for step in lowering.steps:
        angles = step.inputs[1] if step.op == "RoPE" else None
        wanted = lowering.specs[step.outputs[0]].dtype
        if angles is not None and wanted == BFLOAT16 != lowering.specs[angles].dtype:
            if angles not in rounded:
                spec = Spec(lowering.specs[angles].shape, BFLOAT16)
                rounded[angles] = lowering.fresh(angles, spec)
                steps.append(Step(step.name, "Cast", [angles], [rounded[angles]], {}))
            step.inputs[1] = rounded[angles]
        steps.append(step)
    lowering.steps = steps


def take_whole_rows(lowering: Lowering) -> None:
    """A part of a flattened matrix that is always a number of its rows is read as rows: a DMA can't
    begin at any element. ``Narrow(flat, start)`` with a start that is a multiple of the length
    becomes ``Narrow(matrix, start / length)``.
    """
    made = {name: step for step in lowering.steps for name in step.outputs}
    steps: list[Step] = []
    for step in lowering.steps:
        flat, start = (step.inputs[0], step.inputs[1]) if step.op == "Narrow" else (None, None)
        if (
            flat is None
            or start is None
            or len(step.inputs) > 2
            or lowering.specs[flat].dtype != BFLOAT16
            or len(lowering.specs[flat].shape) != 1
            or not is_multiple(start, int(str(step.attributes["length"])), made, lowering)
        ):
            steps.append(step)
            continue
        length = int(str(step.attributes["length"]))
        elements = lowering.specs[flat].elements
        matrix = lowering.fresh(flat, Spec((elements // length, length), BFLOAT16))
        lowering.views[matrix] = View(flat, 0)
        divisor = lowering.fresh("literal", Spec((), INT32))
        lowering.literals[divisor] = np.array(length, INT32)
        row = lowering.fresh(start, lowering.specs[start])
        steps.append(Step(step.name, "Div", [start, divisor], [row], {}))
        taken = lowering.fresh(step.outputs[0], Spec((1, length), BFLOAT16))
        steps.append(Step(step.name, "Narrow", [matrix, row], [taken], {"axis": 0, "length": 1}))
        lowering.views[step.outputs[0]] = View(taken, 0)
    lowering.steps = steps


def is_multiple(name: str, of: int, made: Mapping[str, Step], lowering: Lowering) -> bool:
    """Whether a scalar is a multiple of a number, whatever the call's values are."""
    if of > 0 and name in lowering.integers:
        return all(int(n) % of == 0 for n in lowering.integers[name].reshape(-1))
    step = made.get(name)
    if step is None or of < 1 or step.op not in ("Add", "Mul", "Sub"):
        return False
    parts = [
        operand is not None and is_multiple(operand, of, made, lowering) for operand in step.inputs
    ]
    return any(parts) if step.op == "Mul" else all(parts)


def assign(
    step: Step, lowering: Lowering, device: Device, simulator: bool, any_artifact: bool
) -> Work:
    """Decide who does a step."""
    choice: Choice = choose(step, lowering, device)
    if choice.design is None:
        return Work(step, reason=choice.reason, natural=choice.natural)
    made = artifact(choice.design, simulator)
    if not made.built and not any_artifact:
        return Work(
            step,
            reason=f"its design is not built; `onnx-iron build-kernels MODEL --target {device}` "
            "builds it",
        )
    declared = OPERATORS[step.op]
    names: dict[str, str] = {}
    for slot, name in zip(declared.inputs, step.inputs, strict=False):
        if name is not None:
            names[slot.name] = name
    names.update(zip(declared.outputs, step.outputs, strict=False))
    work = Work(step, made)
    for buffer in choice.design.buffers:
        work.operands.append(names[buffer.name])
        if buffer.role is not Role.INPUT:
            work.written.append(names[buffer.name])
    for value in choice.design.values:
        # "start", or "ids[3]": an element of an operand.
        operand, _, rest = value.name.partition("[")
        work.values[value.name] = names[operand], int(rest.rstrip("]") or 0)
    return work


def is_update(work: Work) -> bool:
    """Whether the NPU writes a part of a value, and leaves the rest of it as it was."""
    return work.artifact is not None and any(
        buffer.role is Role.STATE for buffer in work.artifact.design.buffers
    )


def with_copies(
    work: Sequence[Work],
    lowering: Lowering,
    assigned: Callable[[Step], Work],
    placed: Mapping[str, int],
    inputs: Sequence[str],
    pairs: Sequence[tuple[int, int]],
) -> list[Work]:
    """Before an update of a value that can't be overwritten, copy it to where the update is."""
    result: list[Work] = []
    for item in work:
        if is_update(item):
            old, new = item.step.inputs[0], item.step.outputs[0]
            assert old is not None
            root = lowering.resolve(old)[0]
            shared = placed.get(root) == placed.get(new) and new in placed and root in placed
            paired = root in inputs and new in placed and (inputs.index(root), placed[new]) in pairs
            if not shared and not paired:
                copy = assigned(Step(item.step.name, "Copy", [old], [new], {}))
                copy.natural = True
                result.append(copy)
        result.append(item)
    return result


def cut(
    work: Sequence[Work],
    lowering: Lowering,
    placed: Mapping[str, int],
    pairs: Sequence[tuple[int, int]],
    inputs: Sequence[str],
) -> list[Segment]:
    """Order the steps in as few segments as their dependencies allow, beginning with the host's.

    Within a segment a step of the same design as the one before goes first: a switch costs the NPU
    more than a run.
    """
    waits, after = dependencies(work, lowering, placed, pairs, inputs)
    segments: list[Segment] = []
    left = set(range(len(work)))
    ready = sorted(position for position in left if not waits[position])
    on_npu = False
    while left:
        taken: list[Work] = []
        while here := [position for position in ready if work[position].on_npu is on_npu]:
            position = next((p for p in here if taken and same_design(work[p], taken[-1])), here[0])
            ready.remove(position)
            left.discard(position)
            taken.append(work[position])
            for later in after[position]:
                waits[later].discard(position)
                if not waits[later]:
                    bisect.insort(ready, later)
        if taken:
            segments.append(Segment(on_npu, taken))
        on_npu = not on_npu
    return segments


def same_design(one: Work, other: Work) -> bool:
    """Whether two steps of the NPU are runs of one design."""
    return (
        one.artifact is not None
        and other.artifact is not None
        and one.artifact.key == other.artifact.key
    )


def dependencies(
    work: Sequence[Work],
    lowering: Lowering,
    placed: Mapping[str, int],
    pairs: Sequence[tuple[int, int]],
    inputs: Sequence[str],
) -> tuple[list[set[int]], list[set[int]]]:
    """For each step those that come before it, and those after: by what they read and write.

    Roots that may share memory count as one.
    """
    paired = {inputs[given]: f"output {made}" for given, made in pairs}

    def memory(name: str) -> str:
        root = lowering.resolve(name)[0]
        return f"output {placed[root]}" if root in placed else paired.get(root, root)

    waits: list[set[int]] = [set() for _ in work]
    after: list[set[int]] = [set() for _ in work]
    written: dict[str, int] = {}
    read: dict[str, set[int]] = {}
    for position, item in enumerate(work):
        reads = {memory(name) for name in item.step.inputs if name is not None}
        writes = {memory(name) for name in item.step.outputs}
        before = {written[m] for m in reads | writes if m in written}
        for m in writes:
            before |= read.get(m, set())
        before.discard(position)
        waits[position] |= before
        for earlier in before:
            after[earlier].add(position)
        for m in writes:
            written[m] = position
            read[m] = set()
        for m in reads:
            read.setdefault(m, set()).add(position)
    return waits, after


def arena(
    work: Sequence[Work], lowering: Lowering, elsewhere: Collection[str]
) -> tuple[dict[str, int], int]:
    """Byte offsets of the steps' outputs, used again once nobody reads them; and the size."""
    last: dict[str, int] = {}
    for position, item in enumerate(work):
        for name in (*item.step.inputs, *item.step.outputs):
            if name is not None:
                last[lowering.resolve(name)[0]] = position
    offsets: dict[str, int] = {}
    live: dict[str, tuple[int, int]] = {}
    size = 0
    for position, item in enumerate(work):
        for name in item.step.outputs:
            if name in elsewhere or name in offsets:
                continue
            needed = -(-max(lowering.specs[name].bytes, 1) // ALIGNMENT) * ALIGNMENT
            begin = 0
            for taken, end in sorted(live.values()):
                if begin + needed <= taken:
                    break
                begin = max(begin, end)
            live[name] = begin, begin + needed
            offsets[name] = begin
            size = max(size, begin + needed)
        live = {name: span for name, span in live.items() if last[name] > position}
    return offsets, size


def updates(
    work: Sequence[Work],
    lowering: Lowering,
    homes: Mapping[str, Home],
    pairs: Collection[tuple[int, int]],
) -> set[tuple[int, int]]:
    """The pairs of an input and an output where the NPU writes a part of the input anew."""
    found = set()
    for item in work:
        if not is_update(item):
            continue
        old = item.step.inputs[0]
        assert old is not None
        source = homes[lowering.resolve(old)[0]]
        made = homes[lowering.resolve(item.step.outputs[0])[0]]
        if source.kind is Kind.INPUT and made.kind is Kind.OUTPUT:
            found.add((source.index, made.index))
    return found & set(pairs)
