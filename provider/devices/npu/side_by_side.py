"""Products of one operand that become one product, where their weights lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnx_iron.dtypes import BFLOAT16, Spec
from onnx_iron.provider.devices.npu.stages import Fused
from onnx_iron.provider.lowering import Lowering, View
from onnx_iron.provider.subgraph import Subgraph


def merged(
    made: Sequence[Fused], subgraph: Subgraph, accepted: Callable[[Fused], bool]
) -> list[Fused]:
    """Products of one operand whose weights lie side by side as one product, of which they become
    views.

    Args:
        accepted: whether the NPU takes a product that is several.
    """
    lowering, result = subgraph.lowering, []
    groups: dict[object, list[Fused]] = {}
    for item in made:
        plain = item.weight is not None and item.added is None and item.state is None
        if plain and item.result not in subgraph.placed:
            root = lowering.resolve(str(item.weight))[0]
            groups.setdefault((root, item.prologue, item.sources, item.number), []).append(item)
        else:
            result.append(item)
    for group in groups.values():
        group.sort(key=lambda item: lowering.resolve(str(item.weight))[1])
        rows: list[list[Fused]] = []
        for item in group:
            if rows and _adjoins(lowering, rows[-1][-1], item):
                rows[-1].append(item)
            else:
                rows.append([item])
        for row in rows:
            result += _as_one(row, lowering, accepted)
    return result


def _adjoins(lowering: Lowering, one: Fused, other: Fused) -> bool:
    begin = lowering.resolve(str(one.weight))[1]
    return begin + lowering.specs[str(one.weight)].bytes == lowering.resolve(str(other.weight))[1]


def _as_one(
    row: Sequence[Fused], lowering: Lowering, accepted: Callable[[Fused], bool]
) -> Sequence[Fused]:
    if len(row) == 1:
        return row
    shapes = [lowering.specs[str(item.weight)].shape for item in row]
    first, rows = row[0], sum(shape[0] for shape in shapes)
    root, begin = lowering.resolve(str(first.weight))
    weight = lowering.fresh(root, Spec((rows, shapes[0][1]), BFLOAT16))
    lowering.views[weight] = View(root, begin)
    result = lowering.fresh(first.result, Spec((1, rows), BFLOAT16))
    parts = {id(part): part for item in row for part in item.parts}
    one = replace(first, parts=tuple(parts.values()), weight=weight, result=result)
    if not accepted(one):
        return row
    offset = 0
    for item in row:
        lowering.views[item.result] = View(result, offset)
        offset += lowering.specs[item.result].bytes
    return [one]
