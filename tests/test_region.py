"""Indexing, reading and writing parts of tensors, held to numpy's on the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from compare import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Exported, Network, numbered

from onnx_iron import Graph, Value, export, register, state
from onnx_iron.dtypes import FLOAT32, Array

P = Value.named("p")
# What a per-call value may be computed by, and the p that makes it a given place.
PLACES: list[tuple[Callable[[Any], Any], Callable[[int], int]]] = [
    (lambda p: p, lambda place: place),
    (lambda p: p + 2, lambda place: place - 2),
    (lambda p: 5 - p, lambda place: 5 - place),
    (lambda p: p // 3, lambda place: 3 * place + 2),
    (lambda p: (p + 1) // 2 * 2 - p, lambda place: place if place in (0, 1) else -1),
]


@dataclass(frozen=True)
class Index:
    """An index as a function of p, and the value of p that it is meant for."""

    of: Callable[[Any], tuple[Any, ...]]
    p: int


@st.composite
def static_items(draw: st.DrawFn, size: int) -> Any:
    """An integer or a slice on an axis, counted from the front or the back."""
    first = draw(st.integers(0, size - 1))
    last = draw(st.integers(first + 1, size))
    if draw(st.booleans()):
        return draw(st.sampled_from([first, first - size, np.int64(first)]))
    starts = [first, first - size] + [None] * (first == 0)
    stops = [last, last + 7] * (last == size) + [None] * (last == size)
    stops += [last] + [last - size] * (last < size)
    return slice(draw(st.sampled_from(starts)), draw(st.sampled_from(stops)), 1)


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Index:
    """Any index on a shape: integers, slices, an ellipsis, and one per-call axis anywhere."""
    count = draw(st.integers(0, len(shape)))
    front = draw(st.integers(0, count))
    axes = [*range(front), *range(len(shape) - (count - front), len(shape))]
    items = [draw(static_items(shape[axis])) for axis in axes]
    p, per_call = 0, None
    if axes and draw(st.booleans()):
        at = draw(st.integers(0, len(axes) - 1))
        size = shape[axes[at]]
        place = draw(st.integers(0, size - 1))
        length = draw(st.none() | st.integers(1, size - place))
        usable = [(to, back) for to, back in PLACES if to(back(place)) == place]
        to, back = draw(st.sampled_from(usable))
        p, per_call = back(place), (at, to, length)

    def of(value: Any) -> tuple[Any, ...]:
        given = list(items)
        if per_call is not None:
            at, to, length = per_call
            start = to(value)
            given[at] = start if length is None else slice(start, start + length)
        if count < len(shape) or ellipsis:
            given.insert(front, Ellipsis)
        return tuple(given)

    ellipsis = draw(st.booleans())
    return Index(of, p)


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)
SHAPES_AND_INDICES = SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), indices(shape)))


def reader(index: Index) -> Graph:
    return Network(lambda self, x, *, p: x[index.of(p)].copy())


@settings(max_examples=300)
@given(SHAPES_AND_INDICES)
def test_reading_equals_numpy_s_indexing(case: tuple[tuple[int, ...], Index]) -> None:
    shape, index = case
    x = numbered(*shape)
    result = reader(index).reference(x, p=index.p)
    assert_same_bits(result, np.asarray(x[index.of(index.p)]))


@settings(max_examples=60)
@given(SHAPES_AND_INDICES)
def test_reading_in_the_exported_model_equals_numpy_s(case: tuple[tuple[int, ...], Index]) -> None:
    shape, index = case
    x = numbered(*shape)
    model = Exported(reader(index).trace(x=(shape, FLOAT32)))
    assert_same_bits(model(x=x, p=index.p)["output"], np.asarray(x[index.of(index.p)]))


@dataclass(frozen=True)
class Part:
    """A way to a part of a state: the same calls work on a handle and on numpy's array."""

    shape: tuple[int, ...]
    of: Callable[[Any, Any], Any]
    p: int


@st.composite
def parts(draw: st.DrawFn) -> Part:
    """Reshape, index, reshape or transpose, in this order, each or none."""
    shape = draw(SHAPES)
    seen = draw(st.permutations(shape)) if draw(st.booleans()) else shape
    index = draw(indices(tuple(seen)))
    places = np.arange(np.prod(shape)).reshape(seen)[index.of(index.p)]
    axes = tuple(draw(st.permutations(range(places.ndim)))) if draw(st.booleans()) else None

    def of(tensor: Any, p: Any) -> Any:
        part = tensor.reshape(*seen)[index.of(p)]
        return part if axes is None else part.transpose(*axes)

    return Part(shape, of, index.p)


def writer(part: Part) -> Graph:
    def body(self: Any, y: Any, *, p: Value) -> Any:
        part.of(self.kept, p)[...] = y
        return y + 0

    return Network(body, kept=state(part.shape, FLOAT32))


def written_by_numpy(part: Part, kept: Array, y: Array) -> Array:
    """Plain assignment, to the places that the part's elements have in the whole."""
    places = part.of(np.arange(kept.size).reshape(part.shape), part.p)
    result = kept.reshape(-1).copy()
    result[places] = y
    return result.reshape(part.shape)


def source_for(part: Part) -> Array:
    return -numbered(*np.shape(part.of(numbered(*part.shape), part.p)))


@settings(max_examples=300)
@given(parts())
def test_writing_equals_numpy_s_assignment(part: Part) -> None:
    graph, y = writer(part), source_for(part)
    kept = graph.reference_states()["kept"] = numbered(*part.shape)
    expected = written_by_numpy(part, kept, y)
    graph.reference(y, p=part.p)
    assert_same_bits(kept, expected)


@settings(max_examples=60)
@given(parts())
def test_writing_in_the_exported_model_equals_numpy_s(part: Part) -> None:
    y = source_for(part)
    model = Exported(writer(part).trace(y=(y.shape, FLOAT32)))
    kept = model.states["kept"] = numbered(*part.shape)
    model(y=y, p=part.p)
    assert_same_bits(model.states["kept"], written_by_numpy(part, kept, y))


# -- bounds ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounded:
    """A range at p of one axis, of whose entries the first ``rows`` count, in a larger index."""

    shape: tuple[int, ...]
    axis: int
    length: int
    place: int
    rows: int
    others: tuple[Any, ...]  # what indexes each axis; at ``axis`` it is not looked at
    per_call: bool
    in_source: bool  # the bound is given by what is written rather than by where

    def index(self, p: Any, length: int) -> tuple[Any, ...]:
        start = p if self.per_call else self.place
        span = slice(start, start + length)
        return (*self.others[: self.axis], span, *self.others[self.axis + 1 :])

    @property
    def bound_axis(self) -> int:
        return sum(isinstance(item, slice) for item in self.others[: self.axis])

    def bounded(self, tensor: Any, rows: Any) -> Any:
        return tensor[(*[slice(None)] * self.bound_axis, slice(rows))]


@st.composite
def bounded_parts(draw: st.DrawFn) -> Bounded:
    shape = draw(SHAPES)
    axis = draw(st.integers(0, len(shape) - 1))
    per_call = draw(st.booleans())
    length = draw(st.integers(1, shape[axis]))
    rows = draw(st.integers(0, length))
    # At a per-call place the padding may be past the end.
    place = draw(st.integers(0, shape[axis] - (rows if per_call else length)))
    others = tuple(draw(static_items(size)) for size in shape)
    return Bounded(shape, axis, length, place, rows, others, per_call, draw(st.booleans()))


def bounded_writer(case: Bounded) -> Graph:
    def body(self: Any, y: Any, *, p: Value, rows: Value) -> Any:
        part = self.kept[case.index(p, case.length)]
        if case.in_source:
            part[...] = case.bounded(y, rows)
        else:
            case.bounded(part, rows)[...] = y
        return y + 0

    return Network(body, kept=state(case.shape, FLOAT32))


def bounded_source(case: Bounded) -> Array:
    places = np.arange(np.prod(case.shape)).reshape(case.shape)
    shape = list(places[case.index(case.place, case.rows)].shape)
    shape[case.bound_axis] = case.length
    return -numbered(*shape)


def bounded_by_numpy(case: Bounded, kept: Array, y: Array) -> Array:
    result = kept.copy()
    result[case.index(case.place, case.rows)] = case.bounded(y, case.rows)
    return result


@settings(max_examples=300)
@given(bounded_parts())
def test_a_bounded_write_touches_its_valid_entries_only(case: Bounded) -> None:
    graph, y = bounded_writer(case), bounded_source(case)
    kept = graph.reference_states()["kept"] = numbered(*case.shape)
    expected = bounded_by_numpy(case, kept, y)
    graph.reference(y, p=case.place, rows=case.rows)
    assert_same_bits(kept, expected)


@settings(max_examples=80)
@given(bounded_parts())
def test_a_bounded_write_in_the_exported_model_touches_the_same(case: Bounded) -> None:
    y = bounded_source(case)
    model = Exported(bounded_writer(case).trace(y=(y.shape, FLOAT32)))
    kept = model.states["kept"] = numbered(*case.shape)
    model(y=y, p=case.place, rows=case.rows)
    assert_same_bits(model.states["kept"], bounded_by_numpy(case, kept, y))


@settings(max_examples=80)
@given(bounded_parts())
def test_a_bounded_read_gives_its_valid_entries(case: Bounded) -> None:
    def body(self: Any, x: Any, *, p: Value, rows: Value) -> Any:
        return case.bounded(x[case.index(p, case.length)], rows).copy()

    graph, x = Network(body), numbered(*case.shape)
    expected = x[case.index(case.place, case.rows)]
    result = graph.reference(x, p=case.place, rows=case.rows)
    assert_same_bits(case.bounded(result, case.rows), expected)
    model = Exported(graph.trace(x=(case.shape, FLOAT32)))
    result = model(x=x, p=case.place, rows=case.rows)["output"]
    assert_same_bits(case.bounded(result, case.rows), expected)


def test_a_transposed_part_past_the_end_is_bounded_too() -> None:
    def body(self: Any, x: Any, *, p: Value, rows: Value) -> Any:
        self.kept[p : p + 3].transpose()[:, :rows] = x
        return self.kept[p : p + 3].transpose()[:, :rows].copy()

    graph, x = Network(body, kept=state((4, 2), FLOAT32)), numbered(2, 3)
    model = Exported(graph.trace(x=((2, 3), FLOAT32)))
    expected = np.zeros((4, 2), np.float32)
    expected[3:] = x[:, :1].T
    assert_same_bits(graph.reference(x, p=3, rows=1)[:, :1], x[:, :1])
    assert_same_bits(graph.reference_states()["kept"], expected)
    assert_same_bits(model(x=x, p=3, rows=1)["output"][:, :1], x[:, :1])
    assert_same_bits(model.states["kept"], expected)


# -- writes in their order --------------------------------------------------------------------


def test_a_part_is_read_as_it_is_at_that_step() -> None:
    def body(self: Any, x: Any, *, p: Value) -> Any:
        part = self.kept[1:3]
        before = part + 0
        self.kept[p] = x
        after = part + 0
        self.kept[0:2] = self.kept[1:3]  # one overlaps the other
        self.kept[3] = 7
        return before, after

    graph, x = Network(body, kept=state((4, 2), FLOAT32)), -numbered(2)
    first = numbered(4, 2)
    second = first.copy()
    second[2] = x
    last = second.copy()
    last[0:2] = second[1:3]
    last[3] = 7
    graph.reference_states()["kept"] = first.copy()
    model = Exported(graph.trace(x=((2,), FLOAT32)))
    model.states["kept"] = first
    for before, after in (graph.reference(x, p=2), model(x=x, p=2).values()):
        assert_same_bits(before, first[1:3])
        assert_same_bits(after, second[1:3])
    assert_same_bits(graph.reference_states()["kept"], last)
    assert_same_bits(model.states["kept"], last)


def test_parts_of_one_tensor_that_are_alike_but_for_one_thing_are_apart() -> None:
    reads: list[Callable[[Any, Any], Any]] = [
        lambda x, p: x[0:2],
        lambda x, p: x[:, 0:2],
        lambda x, p: x[:, :, 0:2],
        lambda x, p: x[p : p + 2],
        lambda x, p: x[p : p + 3],
        lambda x, p: x[:, p : p + 2],
        lambda x, p: x[p],
        lambda x, p: x.transpose(1, 0, 2),
        lambda x, p: x.transpose(2, 0, 1),
        lambda x, p: x.transpose(1, 2, 0),
        lambda x, p: x.reshape(16, 4),
        lambda x, p: x.reshape(4, 16),
        lambda x, p: x.reshape(1, 64),
    ]
    graph = Network(lambda self, x, *, p: {f"y{i}": r(x, p).copy() for i, r in enumerate(reads)})
    x = numbered(4, 4, 4)
    made = Exported(graph.trace(x=(x.shape, FLOAT32)))(x=x, p=1)
    for number, read in enumerate(reads):
        assert_same_bits(made[f"y{number}"], np.ascontiguousarray(read(x, 1)))


def test_shapes_whose_digits_are_the_same_are_apart() -> None:
    graph = Network(lambda self, x, z: {"a": x.reshape(1, 12).copy(), "b": z.reshape(11, 2).copy()})
    trace = graph.trace(x=((12,), FLOAT32), z=((22,), FLOAT32))
    made = Exported(trace)(x=numbered(12), z=numbered(22))
    assert (made["a"].shape, made["b"].shape) == ((1, 12), (11, 2))


def test_two_bounds_of_one_part_are_both_checked_by_the_runtime(tmp_path: Path) -> None:
    def body(self: Any, x: Any, *, p: Value, few: Value, many: Value) -> Any:
        part = x[p : p + 4]
        return {"one": part[:few].copy(), "three": part[:many].copy()}

    export(Network(body).trace(x=((8, 4), FLOAT32)), tmp_path / "m.onnx")
    register()
    session = onnxruntime.InferenceSession(
        tmp_path / "m.onnx", providers=["IronExecutionProvider", "CPUExecutionProvider"]
    )

    def given(p: int) -> dict[str, Any]:
        values = {"p": p, "few": 1, "many": 3}
        return {"x": numbered(8, 4), **{n: np.array(v, np.int32) for n, v in values.items()}}

    one, three = session.run(["one", "three"], given(5))
    assert_same_bits(one[:1], numbered(8, 4)[5:6])
    assert_same_bits(three[:3], numbered(8, 4)[5:8])
    with pytest.raises(Exception, match="start is 6 and rows 3"):
        session.run(None, given(6))


def test_a_number_fills_what_is_valid() -> None:
    def body(self: Any, x: Any, *, p: Value, rows: Value) -> Any:
        self.kept[p : p + 2, :rows] = 5
        self.filled[...] = -1
        return x + 0

    kept, filled = state((4, 3), FLOAT32), state((2, 2), FLOAT32)
    graph = Network(body, kept=kept, filled=filled)
    model = Exported(graph.trace(x=((1,), FLOAT32)))
    graph.reference(numbered(1), p=1, rows=2)
    model(x=numbered(1), p=1, rows=2)
    expected = np.zeros((4, 3), np.float32)
    expected[1:3, :2] = 5
    for states in (graph.reference_states(), model.states):
        assert_same_bits(states["kept"], expected)
        assert_same_bits(states["filled"], np.full((2, 2), -1, np.float32))


# -- refusals -----------------------------------------------------------------------------------


def recording(use: Callable[[Any, Value, Value], Any], shape: tuple[int, ...] = (4, 5)) -> None:
    def body(self: Any, x: Any, *, p: Value, q: Value) -> Any:
        use(x, p, q)
        return x + 0

    Network(body).trace(x=(shape, FLOAT32))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x, p, q: x[4], IndexError, r"x\[...\] axis 0: index 4 is outside of 4 entries"),
        (lambda x, p, q: x[0, -6], IndexError, r"axis 1: index -6 is outside of 5 entries"),
        (lambda x, p, q: x[0, 0, 0], IndexError, r"3 indices for shape \(4, 5\)"),
        (lambda x, p, q: x[..., 0, ...], IndexError, "one ellipsis at the most"),
        (lambda x, p, q: x[:, ::-1], ValueError, "axis 1: a slice's step is -1; it must be"),
        (lambda x, p, q: x[2:2], ValueError, "axis 0: 2:2 is empty on 4 entries"),
        (lambda x, p, q: x[7:], ValueError, "axis 0: 7:None is empty on 4 entries"),
        (lambda x, p, q: x[p, q], ValueError, "only one axis may be indexed by a per-call value"),
        (
            lambda x, p, q: x[p:],
            ValueError,
            r"\[p : p \+ n\] with n in 1..4.*is p:None",
        ),
        (lambda x, p, q: x[p:q], ValueError, "a fixed number of entries.*this one is p:q"),
        (lambda x, p, q: x[2:p], ValueError, "this one is 2:p"),
        (lambda x, p, q: x[p : p + 5], ValueError, r"n in 1..4, .*; this one is p:p \+ 5"),
        (lambda x, p, q: x[p:p], ValueError, "n in 1..4, .*; this one is p:p"),
        (lambda x, p, q: x[True], TypeError, "True is no index"),
        (lambda x, p, q: x[1.0], TypeError, "1.0 is no index"),
        (lambda x, p, q: x[:p][:q], ValueError, "axis 0 is bounded by p already, not by q"),
        (lambda x, p, q: x[:p][0:2], ValueError, "take a part of it before you bound it"),
        (lambda x, p, q: x.transpose(0, 0), ValueError, r"transpose\(0, 0\): not an order of 2"),
        (lambda x, p, q: x.reshape(3, 7), ValueError, r"has 20 elements, the new shape 21"),
        (lambda x, p, q: x.reshape(-1, 3), ValueError, "has 20 elements"),
    ],
)
def test_what_is_no_part_is_refused(
    use: Callable[[Any, Value, Value], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        recording(use)


@pytest.mark.parametrize("p", [-1, 4, 100])
@pytest.mark.parametrize(
    "index",
    [
        lambda p: p,
        lambda p: (slice(None), p),
        lambda p: (2, p),
        lambda p: (0, p, 1),
        lambda p: (3, 3, p),
        lambda p: (1, slice(p, p + 1)),
        lambda p: (p, slice(1, 3)),
    ],
)
def test_a_place_outside_of_its_axis_is_an_error_at_the_call(index: Any, p: int) -> None:
    """Even where the flat memory has elements there: behind another axis, past the end of one
    entry is the beginning of the next.
    """
    graph = Network(lambda self, x, *, p: x[index(p)].copy())
    with pytest.raises(ValueError, match=r"Copy 'copy': x\[\.\.\.\]: .* is -?\d+, expected 0\.\."):
        graph.reference(numbered(4, 4, 4), p=p)

    def body(self: Any, x: Any, *, p: Value) -> Any:
        self.kept[index(p)] = x
        return x + 0

    writes = Network(body, kept=state((4, 4, 4), FLOAT32))
    size = np.zeros((4, 4, 4))[index(0)].shape
    with pytest.raises(ValueError, match=r"Copy 'copy': kept\[\.\.\.\]: .* expected 0\.\."):
        writes.reference(numbered(*size), p=p)
    assert not writes.reference_states()["kept"].any()


@pytest.mark.parametrize("rows", [-1, 5])
def test_a_bound_outside_of_its_axis_is_an_error_at_the_call(rows: int) -> None:
    graph = Network(lambda self, x, *, rows: x[:rows] + 1)
    with pytest.raises(ValueError, match=rf"Add 'add': rows is {rows}, expected 0..4"):
        graph.reference(numbered(4, 2), rows=rows)
