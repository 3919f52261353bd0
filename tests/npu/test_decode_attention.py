"""Attention of a decoder's row in its configuration: parts gathered, parts merged."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import iron_stub
import numpy as np
import pytest
from design_cases import numbers
from exactness import hold
from test_decode import SHAPES, designed, port, stage, stages_of

from onnx_iron.dtypes import Array
from onnx_iron.kernels.designs import Design, Refusal, Target
from onnx_iron.kernels.designs.check import checked
from onnx_iron.kernels.designs.configuration import configuration, counts
from onnx_iron.kernels.designs.configuration import numbers as told
from onnx_iron.kernels.designs.decode import BLOCK, Prologue, Stage, decode
from onnx_iron.kernels.designs.decode_attention import Parts, gather
from onnx_iron.kernels.designs.design import Access, Port, Scalar
from onnx_iron.kernels.designs.interpreter import DesignError, evaluate
from onnx_iron.kernels.designs.lowering import lower
from onnx_iron.kernels.designs.schedule import schedule
from onnx_iron.operators.attention import Attention

# Query heads, key heads, head_dim.
HEADS = {
    "SmolLM2-135M": (9, 3, 64),
    "LFM2-350M": (16, 8, 64),
    "Llama-3.2-1B": (32, 8, 64),
    "Qwen2.5-0.5B": (14, 2, 64),
    "Qwen2.5-1.5B": (12, 2, 128),
    "one head": (1, 1, 32),
}


def gathering(parts: Parts, target: Target) -> Design | Refusal:
    described = parts.described(1.0)
    shape = (parts.entries, parts.groups, parts.dim)
    ports = {
        "query": port("query", 1, parts.heads, parts.dim),
        "seen": Port("seen", "int32", (), Access.READ),
        "rounds": Port("rounds", "int32", (), Access.READ),
        "described": port("described", *described.shape),
        "key": port("key", *shape),
        "value": port("value", *shape),
        "states": port("states", parts.state, access=Access.WRITE),
    }
    rounds = Scalar("rounds", 1, parts.rounds) if parts.counted else None
    return gather(parts, ports, target, rounds)


def gathered_design(parts: Parts, target: Target) -> Design:
    design = gathering(parts, target)
    assert isinstance(design, Design), design
    return design


def merging(parts: Parts, **others: Any) -> Stage:
    others.setdefault("result", port("y", parts.heads * parts.dim, access=Access.WRITE))
    return Stage(
        Prologue.MERGE,
        (port("x0", parts.state),),
        parts.heads,
        parts.dim,
        number=parts.parts,
        **others,
    )


def attention(
    target: Target,
    query: Array,
    key: Array,
    value: Array,
    seen: int,
    rounds: int | None = None,
    scale: float | None = None,
) -> Array:
    """By the two steps; the same bits whatever memory held before."""
    (_, heads, dim), (entries, groups, _) = query.shape, key.shape
    parts = Parts(target.columns, heads, groups, dim, entries)
    if rounds is None:
        rounds = -(-seen // parts.every) if parts.counted else parts.rounds
    given = {
        "query": query,
        "seen": np.array(seen, np.int32),
        "rounds": np.array(rounds, np.int32),
        "described": parts.described(dim**-0.5 if scale is None else scale),
        "key": key,
        "value": value,
    }
    values = {"rounds": rounds} if parts.counted else {}
    gatherer, merger = gathered_design(parts, target), designed(merging(parts), target)
    results = []
    for poison in (0xFF, 0x3C):
        states = evaluate(gatherer, given, values, poison=poison)["states"]
        results.append(evaluate(merger, {"x0": states}, poison=poison)["y"])
    np.testing.assert_array_equal(*(y.view(np.uint16) for y in results))
    return results[0].reshape(query.shape)


def operands(heads: int, groups: int, dim: int, entries: int) -> tuple[Array, Array, Array]:
    shape = (entries, groups, dim)
    return numbers(1, 1, heads, dim, scale=2.0), numbers(2, *shape), numbers(3, *shape)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("model", HEADS)
def test_the_filled_part_is_attended_to_and_nothing_else_is_read(
    model: str, target: Target
) -> None:
    heads, groups, dim = HEADS[model]
    every = Parts(target.columns, heads, groups, dim, 1).every
    entries = 4 * every
    query, key, value = operands(heads, groups, dim, entries)
    for seen in {1, every - 1, every, every + 1, 2 * every + 3, entries}:
        unseen_key, unseen_value = key.copy(), value.copy()
        unseen_key[seen:], unseen_value[seen:] = np.nan, np.nan
        y = attention(target, query, unseen_key, unseen_value, seen)
        hold(Attention(is_causal=True), y, query, key, value, seen - 1)


@pytest.mark.parametrize("target", Target)
def test_a_scale_and_rounds_beyond_the_seen_entries_change_what_they_say(target: Target) -> None:
    query, key, value = operands(9, 3, 64, 256)
    y = attention(target, query, key, value, 70, scale=0.5)
    hold(Attention(scale=0.5), y, query, key, value, None, 70)
    longer = attention(target, query, key, value, 70, rounds=4, scale=0.5)
    np.testing.assert_array_equal(longer, y)


@pytest.mark.parametrize("target", Target)
def test_rows_of_infinity_and_nan_and_scores_of_infinity_are_the_oracles(target: Target) -> None:
    query, key, value = operands(9, 3, 64, 256)
    value[3, 0, 5], value[77, 1, 6], value[150, 2, 7] = np.inf, -np.inf, np.nan
    value[10, 0, 8], value[170, 0, 8] = np.inf, np.inf
    key[20, 1] = -np.inf
    query[0, 3:6] = np.abs(query[0, 3:6]) + 0.25
    y = attention(target, query, key, value, 200)
    hold(Attention(is_causal=True), y, query, key, value, 199)
    for row, column, number in ((0, 5, np.inf), (3, 6, -np.inf), (0, 8, np.inf)):
        assert y[0, row, column] == number
    assert np.isnan(y[0, 6:, 7].astype(np.float32)).all()
    key[...] = -np.inf
    query[...] = np.abs(query)
    assert np.isnan(attention(target, query, key, value, 200).astype(np.float32)).all()


@pytest.mark.parametrize("target", Target)
def test_the_merge_is_what_comes_before_a_product_and_a_sum(target: Target) -> None:
    query, key, value = operands(4, 4, 64, 256)
    parts = Parts(target.columns, 4, 4, 64, 256)
    weight, added = numbers(5, 96, 256, scale=1 / 16), numbers(6, 96)
    plain = attention(target, query, key, value, 100)
    given = {
        "query": query,
        "seen": np.array(100, np.int32),
        "rounds": np.array(-(-100 // parts.every), np.int32),
        "described": parts.described(1 / 8),
        "key": key,
        "value": value,
    }
    design = gathered_design(parts, target)
    states = evaluate(design, given, {"rounds": int(given["rounds"])})["states"]
    result = port("y", 96, access=Access.WRITE)
    made = merging(parts, result=result, weight=port("weight", 96, 256), added=port("added", 96))
    y = evaluate(designed(made, target), {"x0": states, "weight": weight, "added": added})["y"]
    product = stage(Prologue.NONE, (256,), weight=port("weight", 96, 256), added=port("added", 96))
    wanted = evaluate(
        designed(product, target), {"x0": plain.reshape(-1), "weight": weight, "added": added}
    )["y"]
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("target", Target)
def test_attention_shares_the_configuration_of_all_other_steps(target: Target) -> None:
    made = []
    for model in SHAPES:
        heads, groups, dim = HEADS[model]
        parts = Parts(target.columns, heads, groups, dim, 1024)
        made += [gathered_design(parts, target), designed(merging(parts), target)]
        made += [designed(one, target) for one in stages_of(model).values()]
    assert len({configuration(design) for design in made}) == 1
    words = {
        len(told(design, column, design.possible_values()))
        for design in made
        for column in range(target.columns)
    }
    assert len(words) == 1


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("model", SHAPES)
def test_a_call_moves_what_is_filled_over_all_columns(model: str, target: Target) -> None:
    heads, groups, dim = HEADS[model]
    parts = Parts(target.columns, heads, groups, dim, 1024)
    design = gathered_design(parts, target)
    for filled in (parts.every, 512, 1024):
        rounds = filled // parts.every
        (phase,) = schedule(design, {"rounds": rounds})
        moved = Counter[tuple[str, int]]()
        for walk in phase:
            moved[walk.buffer, walk.column] += math.prod(walk.sizes)
        for column in range(target.columns):
            for name in ("key", "value"):
                assert moved[name, column] == filled * groups * dim // target.columns
    assert len(phase) <= 3 * target.columns + 4, "keys, values, states; the operands once"


@pytest.mark.parametrize("release", iron_stub.RELEASES)
@pytest.mark.parametrize("target", Target)
def test_iron_is_told_how_long_a_calls_walks_are_and_how_many_tiles_come(
    target: Target, release: str
) -> None:
    parts = Parts(target.columns, 9, 3, 64, 1024)
    design = gathered_design(parts, target)
    tiles = 2 * parts.round * parts.width // 512
    for rounds in (1, 5, parts.rounds):
        with iron_stub.installed(release) as iron:
            lower(design, {"rounds": rounds})
        for column in range(target.columns):
            calls = [(name, given) for name, at, given in iron.calls if at[0] == column]
            counted = Counter(name for name, _ in calls)
            assert counted["decode_tile_bf16"] == tiles * rounds
            assert counted["decode_finish_bf16"] == parts.own_heads * parts.head_state // BLOCK
            found = [int(given[4]) for name, given in calls if name == "decode_tile_bf16"]
            assert found == list(range(tiles * rounds))
            (column_told,) = (int(g[4]) for name, g in calls if name == "decode_start_bf16")
            assert column_told == column
        walks = [tap for _, fifo, _, tap in iron.moves if fifo.startswith("weight_")]
        assert len(walks) == 2 * target.columns
        # The dimension that the hardware does not count is the second of four.
        assert {(tap.sizes[0], tap.sizes[1]) for tap in walks} == {(1, rounds)}


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("model", SHAPES)
def test_a_calls_counts_are_all_that_differs_of_its_walks_and_words(
    model: str, target: Target
) -> None:
    """So the instructions of one call become another's by these words alone."""
    parts = Parts(target.columns, *HEADS[model], 1024)
    design = gathered_design(parts, target)
    one, other = ({"rounds": rounds} for rounds in (parts.rounds, 1))
    differing = []
    for column in range(target.columns):
        pairs = zip(told(design, column, one), told(design, column, other), strict=True)
        differing += [pair for pair in pairs if pair[0] != pair[1]]
    for a, b in zip(schedule(design, one)[0], schedule(design, other)[0], strict=True):
        assert (a.column, a.stream, a.buffer, a.offset) == (b.column, b.stream, b.buffer, b.offset)
        assert a.sizes[1:] == b.sizes[1:]
        if a.sizes != b.sizes:
            differing.append((math.prod(a.sizes) // 2, math.prod(b.sizes) // 2))
            a_words, b_words = a.pattern(2), b.pattern(2)
            assert a_words[1:] == b_words[1:]
            assert a_words[0][1] == b_words[0][1]
    assert list(zip(counts(design, one), counts(design, other), strict=True)) == differing


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (Parts(8, 9, 3, 64, 1000), "a cache of 1000 entries is no number of rounds of 64"),
        (Parts(8, 9, 3, 96, 1024), "heads of 96 elements, of which a tile of 512 is no whole"),
        (Parts(8, 9, 3, 16, 1024), "heads of 16 elements"),
        (Parts(8, 32, 8, 64, 8192), "4 heads of 8192 entries take 68608 elements of a core"),
    ],
)
def test_a_cache_that_does_not_go_so_is_refused_with_the_reason(parts: Parts, reason: str) -> None:
    refused = gathering(parts, Target.NPU2)
    assert isinstance(refused, Refusal)
    assert reason in refused.reason


def test_rounds_that_are_not_walked_or_not_there_stop_the_interpreter() -> None:
    """A core would wait for tiles for ever, or leave some to the next step."""
    parts = Parts(8, 9, 3, 64, 256)
    query, key, value = operands(9, 3, 64, 256)
    with pytest.raises(DesignError, match=r"rounds is 5, expected 1\.\.4"):
        attention(Target.NPU2, query, key, value, 256, rounds=5)
    assert isinstance(decode(merging(parts), Target.NPU2), Design)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"told": False}, "the innermost loop runs as often as a core is told, and none is told"),
        ({"streams": {"whole": False}}, "stream weight follows the innermost loop"),
        ({"streams": {"arrange": ((1, 1),)}}, "stream weight comes as whole walks, which go out"),
        ({"innermost": None, "streams": {"whole": False}}, "has a tile whose size a call's values"),
        ({"columns": ((8, 0),) * 8}, None),
    ],
)
def test_walks_that_a_core_could_not_follow_are_refused(
    change: dict[str, Any], reason: str | None
) -> None:
    design = gathered_design(Parts(8, 9, 3, 64, 256), Target.NPU2)
    if "streams" in change:
        x, weight, y = design.streams
        change = change | {"streams": (x, dataclasses.replace(weight, **change["streams"]), y)}
    changed = checked(dataclasses.replace(design, **change))
    if reason is None:
        assert isinstance(changed, Design)
    else:
        assert isinstance(changed, Refusal)
        assert reason in changed.reason
