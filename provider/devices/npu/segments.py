"""The order of a plan's steps, in segments that go out together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from onnx_iron.provider.devices.npu.work import Segment, Work
from onnx_iron.provider.schedule import in_order
from onnx_iron.provider.subgraph import Subgraph


def cut(work: Sequence[Work], subgraph: Subgraph) -> list[Segment]:
    """Order the steps in as few segments as their dependencies allow, beginning with the host's.

    Within a segment a step of the same configuration as the one before goes first: a switch costs
    the NPU more than a run.
    """
    on_npu, last = False, None

    def choose(ready: Sequence[int]) -> int:
        nonlocal on_npu, last
        here = [place for place, at in enumerate(ready) if work[at].on_npu is on_npu]
        if not here:
            on_npu, last, here = not on_npu, None, list(range(len(ready)))
        chosen = next((p for p in here if last and stays(work[ready[p]], last)), here[0])
        last = work[ready[chosen]]
        return chosen

    order = in_order(len(work), dependencies(work, subgraph), choose)
    segments = groupby((work[at] for at in order), lambda item: item.on_npu)
    return [Segment(where, list(items)) for where, items in segments]


def stays(one: Work, other: Work) -> bool:
    """Whether two steps of the NPU have one configuration."""
    return (
        one.artifact is not None
        and other.artifact is not None
        and one.artifact.configuration == other.artifact.configuration
    )


def dependencies(work: Sequence[Work], subgraph: Subgraph) -> dict[int, set[int]]:
    """For each step those that come after it: by what they read and write.

    Roots that may share memory count as one.
    """
    lowering, placed = subgraph.lowering, subgraph.placed
    paired = {subgraph.inputs[given]: f"output {made}" for given, made in subgraph.pairs}

    def memory(name: str) -> str:
        root = lowering.resolve(name)[0]
        return f"output {placed[root]}" if root in placed else paired.get(root, root)

    after: dict[int, set[int]] = {}
    written: dict[str, int] = {}
    read: dict[str, set[int]] = {}
    for position, item in enumerate(work):
        reads = {memory(name) for name in item.step.inputs if name is not None}
        writes = {memory(name) for name in item.step.outputs}
        before = {written[m] for m in reads | writes if m in written}
        for m in writes:
            before |= read.get(m, set())
        for earlier in before - {position}:
            after.setdefault(earlier, set()).add(position)
        for m in writes:
            written[m] = position
            read[m] = set()
        for m in reads:
            read.setdefault(m, set()).add(position)
    return after
