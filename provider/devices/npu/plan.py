"""A subgraph's plan for the NPU: which steps it runs, in which segments, and where values live."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx_iron.kernels.designs import Refusal, Target
from onnx_iron.kernels.designs.decode import decode
from onnx_iron.kernels.designs.design import Access
from onnx_iron.operators import Op
from onnx_iron.operators.copy import Copy
from onnx_iron.provider.arena import ALIGNMENT, plan_arena
from onnx_iron.provider.devices.npu.artifacts import Compiler, artifact
from onnx_iron.provider.devices.npu.attention import Gathering, Gatherings
from onnx_iron.provider.devices.npu.choose import Choice, choose
from onnx_iron.provider.devices.npu.rewrites import join_weights, rewritten
from onnx_iron.provider.devices.npu.segments import cut
from onnx_iron.provider.devices.npu.side_by_side import merged
from onnx_iron.provider.devices.npu.stages import Fused, fused, place
from onnx_iron.provider.devices.npu.work import Home, Place, Plan, Segment, Work
from onnx_iron.provider.lowering import KernelCall, Lowering
from onnx_iron.provider.subgraph import Subgraph

__all__ = ["Home", "Place", "Plan", "Segment", "Work", "make_plan"]


def make_plan(
    subgraph: Subgraph, target: Target, compiler: Compiler, *, any_artifact: bool
) -> Plan:
    """Plan a subgraph.

    Args:
        any_artifact: take designs whose artifacts aren't built; else the host does those steps.
    """
    subgraph = rewritten(subgraph)
    lowering = subgraph.lowering
    joined = join_weights(subgraph)
    gatherings = Gatherings(subgraph, target)

    def assigned(step: KernelCall) -> Work:
        return assign(step, lowering, target, compiler, any_artifact)

    def together(made: Fused) -> list[Work]:
        work = assign_fused(made, lowering, target, compiler)
        built = all(w.artifact is not None and w.artifact.built for w in work)
        return work if built or any_artifact else []

    made = put_together(subgraph, gatherings, assigned, together)
    work = with_copies(made, subgraph, assigned)
    segments = cut(work, subgraph)
    homes: dict[str, Home] = {}
    for number, name in enumerate(subgraph.inputs):
        homes[name] = Home(Place.CONSTANT if subgraph.constant[number] else Place.INPUT, number)
    homes.update({root: Home(Place.JOINED) for root in joined})
    homes.update({name: Home(Place.LITERAL) for name in lowering.literals})
    homes.update({root: Home(Place.OUTPUT, number) for root, number in subgraph.placed.items()})
    # An output never takes an input's bytes: a design has not promised to bear that.
    ordered = [item.step for segment in segments for item in segment.work]
    offsets = plan_arena(lowering, ordered, homes, lambda *_: ())
    homes.update({root: Home(Place.ARENA, offset=offset) for root, offset in offsets.items()})
    ends = (
        offset + -(-max(lowering.specs[root].bytes, 1) // ALIGNMENT) * ALIGNMENT
        for root, offset in offsets.items()
    )
    return Plan(
        lowering=lowering,
        inputs=subgraph.inputs,
        outputs=subgraph.outputs,
        segments=segments,
        homes=homes,
        arena_bytes=max(ends, default=0),
        pairs=set(subgraph.pairs) - unbearable(work, subgraph, homes),
        updates=updates(work, subgraph, homes),
        joined=joined,
    )


def put_together(
    subgraph: Subgraph,
    gatherings: Gatherings,
    assigned: Callable[[KernelCall], Work],
    together: Callable[[Fused], list[Work]],
) -> list[Work]:
    """The steps, in order, those together that the NPU takes so.

    Args:
        assigned: who does a step.
        together: what several are on the NPU, or none where it does not take them.
    """
    places = {id(step): place for place, step in enumerate(subgraph.steps)}
    # Products that become one are not built one by one.
    put = list(fused(subgraph, gatherings))
    taken = merged(put, subgraph, lambda made: bool(together(made)))
    work = [(made, together(made)) for made in taken]
    taken = [made for made, done in work if done]
    found = [(place(made, places), one) for made, done in work for one in done]
    done = {id(part) for made in taken for part in made.parts}
    steps = [step for step in subgraph.steps if id(step) not in done]
    # A norm that a product does for itself may have other readers.
    read = {
        subgraph.lowering.resolve(name)[0]
        for step in (*steps, *(made.step() for made in taken))
        for name in step.inputs
        if name is not None
    } - {made.result for made in taken}
    steps += [s for s in subgraph.steps if id(s) in done and read.intersection(s.outputs)]
    found += [(places[id(step)], assigned(step)) for step in steps]
    return [work for _, work in sorted(found, key=lambda pair: pair[0])]


def assign_fused(made: Fused, lowering: Lowering, target: Target, compiler: Compiler) -> list[Work]:
    """Steps as one of the NPU's, and what gathers for it; none where their designs do not take
    them.
    """
    design = decode(made.stage(lowering), target)
    if isinstance(design, Refusal):
        return []
    work = Work(made.step(), artifact(design, compiler), parts=made.own)
    work.operands, work.written = made.operands, [made.result]
    if made.start is not None:
        work.values["start"] = made.start, 0
    if made.gathering is None:
        return [work]
    first = assign_gathering(made.gathering, lowering, target, compiler)
    return [] if first is None else [first, work]


def assign_gathering(
    made: Gathering, lowering: Lowering, target: Target, compiler: Compiler
) -> Work | None:
    """What gathers an attention's parts, as one of the NPU's steps."""
    design = made.design(lowering, target)
    if isinstance(design, Refusal):
        return None
    work = Work(made.step(), artifact(design, compiler), parts=(made.attention,))
    work.operands, work.written = made.operands, [made.states]
    work.values.update(made.counts)
    return work


def assign(
    step: KernelCall, lowering: Lowering, target: Target, compiler: Compiler, any_artifact: bool
) -> Work:
    """Decide who does a step."""
    choice: Choice = choose(step, lowering, target)
    if choice.design is None:
        return Work(step, reason=choice.reason, natural=choice.natural)
    made = artifact(choice.design, compiler)
    if not made.built and not any_artifact:
        return Work(
            step,
            reason=f"its design is not built; `onnx-iron build-kernels MODEL --target {target}` "
            "builds it",
        )
    operator = step.op
    assert isinstance(operator, Op)
    names: dict[str, str] = {}
    for slot, name in zip(operator.inputs, step.inputs, strict=False):
        if name is not None:
            names[slot.name] = name
    names.update(zip(operator.outputs, step.outputs, strict=False))
    work = Work(step, made)
    for buffer in choice.design.buffers:
        work.operands.append(names[buffer.name])
        if buffer.access is not Access.READ:
            work.written.append(names[buffer.name])
    for value in choice.design.values:
        # "start", or "ids[3]": an element of an operand.
        operand, _, rest = value.name.partition("[")
        work.values[value.name] = names[operand], int(rest.rstrip("]") or 0)
    return work


def with_copies(
    work: Sequence[Work], subgraph: Subgraph, assigned: Callable[[KernelCall], Work]
) -> list[Work]:
    """Before an update of a value that can't be overwritten, copy it to where the update is."""
    inputs, placed = subgraph.inputs, subgraph.placed
    result: list[Work] = []
    for item in work:
        if item.is_update:
            old, new = item.step.inputs[0], item.step.outputs[0]
            assert old is not None
            root = subgraph.lowering.resolve(old)[0]
            shared = placed.get(root) == placed.get(new) and new in placed and root in placed
            paired = (
                root in inputs
                and new in placed
                and (inputs.index(root), placed[new]) in subgraph.pairs
            )
            if not shared and not paired:
                copy = assigned(KernelCall(item.step.name, Copy(), [old], [new]))
                copy.natural = True
                result.append(copy)
        result.append(item)
    return result


def unbearable(
    work: Sequence[Work], subgraph: Subgraph, homes: Mapping[str, Home]
) -> set[tuple[int, int]]:
    """Pairs of an input and an output that one step reads and writes, which is several: its columns
    read all of the one while others write the other.
    """

    def place(name: str) -> Home:
        return homes[subgraph.lowering.resolve(name)[0]]

    return {
        (place(read).index, place(made).index)
        for item in work
        if len(item.parts) > 1 and not item.is_update
        for made in item.written
        for read in item.operands
        if place(read).place is Place.INPUT and place(made).place is Place.OUTPUT
    }


def updates(
    work: Sequence[Work], subgraph: Subgraph, homes: Mapping[str, Home]
) -> set[tuple[int, int]]:
    """The pairs of an input and an output where the NPU writes a part of the input anew."""
    lowering, found = subgraph.lowering, set()
    for item in work:
        if not item.is_update:
            continue
        old = item.step.inputs[0]
        assert old is not None
        source = homes[lowering.resolve(old)[0]]
        made = homes[lowering.resolve(item.step.outputs[0])[0]]
        if source.place is Place.INPUT and made.place is Place.OUTPUT:
            found.add((source.index, made.index))
    return found & set(subgraph.pairs)
