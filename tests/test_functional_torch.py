"""Functions against torch's, over random shapes, on the reference and on the CPU kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from compare import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Exported, Network, random

from onnx_iron import functional as F
from onnx_iron.dtypes import BFLOAT16, FLOAT32, FLOATS, Array

dtypes = pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in FLOATS])
few = settings(max_examples=12, deadline=None)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)

# By name: what a body writes, what torch has.
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "relu": (F.relu, torch.relu),
    "squared_relu": (F.squared_relu, lambda x: torch.relu(x) ** 2),
    "sigmoid": (F.sigmoid, torch.sigmoid),
    "tanh": (F.tanh, torch.tanh),
    "exp": (F.exp, torch.exp),
    "log": (F.log, torch.log),
    "sqrt": (F.sqrt, torch.sqrt),
    "rsqrt": (F.rsqrt, torch.rsqrt),
    "abs": (abs, torch.abs),
    "neg": (operator.neg, torch.neg),
    "softplus": (F.softplus, TF.softplus),
    "clamp": (lambda x: x.clamp(-0.5, 1), lambda x: x.clamp(-0.5, 1)),
    "power": (lambda x: x**2, lambda x: x**2),
    "reversed power": (lambda x: 2**x, lambda x: 2**x),
    "where": (lambda x: F.where(x > 0, x, -1.0), lambda x: torch.where(x > 0, x, -1.0)),
    "masked_fill": (lambda x: x.masked_fill(x > 1, 0.5), lambda x: x.masked_fill(x > 1, 0.5)),
}
# These are exact, whatever the shape.
MOVES: dict[str, Callable[[Any], Any]] = {
    "flatten": lambda x: x.flatten(),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(),
    "None": lambda x: x[None],
    "None behind": lambda x: x[..., None],
    "T": lambda x: x.permute(*reversed(range(len(x.shape)))),
    "every other": lambda x: x[::2],
    "a slice of a slice": lambda x: x[0:1][..., 0:1],
    "a row": lambda x: x[-1],
    "ids": lambda x: x[torch.tensor([0, -1, 0])],
    "amax": lambda x: x.amax(-1, keepdim=True),
    "argmax": lambda x: x.argmax(-1),
    "max": lambda x: x.max(0).values,
    "comparison": lambda x: (x > 0.5).float(),
    "logic": lambda x: ((x > 0.5) | ~(x < 0) & (x != 1)).float(),
    "to": lambda x: x.to(torch.int32),
}


def check(
    body: Callable[[Any], Any], wanted: torch.Tensor, x: Array, ulp: int, of_largest: float = 0.0
) -> None:
    """Hold the reference and the kernels to torch."""
    graph = Network(lambda self, x: body(x))
    expected = wanted.float().numpy() if wanted.is_floating_point() else wanted.numpy()
    for result in (graph.reference(x), graph(x)):
        if result.dtype not in FLOATS:
            np.testing.assert_array_equal(result, expected)
            continue
        near = np.asarray(expected).astype(result.dtype)
        reason = "another approximation, or a rounding to the other side"
        assert_close(result, near, ulp=ulp, of_largest=of_largest, reason=reason)


def numbers(shape: tuple[int, ...], seed: int, dtype: Any, special: bool = True) -> Array:
    """Normal numbers, some of them NaN and infinities."""
    x = random(*shape, seed=seed)
    rng = np.random.default_rng(seed)
    odd = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0], np.float32), shape)
    return np.asarray(np.where((rng.random(shape) < 0.1) & special, odd, x)).astype(dtype)


@dtypes
@pytest.mark.parametrize("name", UNARY)
@few
@given(shape=shapes, seed=st.integers(0, 99))
def test_a_function_of_numbers_is_torch_s(
    name: str, dtype: Any, shape: tuple[int, ...], seed: int
) -> None:
    ours, theirs = UNARY[name]
    x = numbers(shape, seed, dtype)
    wanted = theirs(torch.from_numpy(x.astype(np.float32)))
    # Of two steps each rounds.
    check(ours, wanted, x, ulp=8 if dtype == FLOAT32 else 2)


@dtypes
@pytest.mark.parametrize("name", MOVES)
@few
@given(shape=shapes, seed=st.integers(0, 99))
def test_what_moves_or_chooses_is_torch_s_to_the_bit(
    name: str, dtype: Any, shape: tuple[int, ...], seed: int
) -> None:
    use, x = MOVES[name], numbers(shape, seed, dtype, special=name in ("amax", "argmax", "max"))
    ours = use if name != "ids" else lambda x: x[np.array([0, -1, 0])]
    check(ours, use(torch.from_numpy(x.astype(np.float32))), x, ulp=0)


@dtypes
@few
@given(shape=shapes, seed=st.integers(0, 99), data=st.data())
def test_sums_over_axes_are_torch_s(
    dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    keep = data.draw(st.booleans())
    k = data.draw(st.integers(1, shape[axis]))
    x = random(*shape, seed=seed).astype(dtype)
    t = torch.from_numpy(x.astype(np.float32))
    ulp, near = (8, 1e-6) if dtype == FLOAT32 else (1, 2**-8)
    check(lambda x: x.sum(axis, keep), t.sum(axis, keep), x, ulp, near)
    check(lambda x: x.mean(axis, keep), t.mean(axis, keep), x, ulp, near)
    check(lambda x: F.sum(x), t.sum(), x, ulp, near)
    check(lambda x: F.mean(x, tuple(range(len(shape)))), t.mean(), x, ulp, near)
    check(lambda x: x.cumsum(axis), t.cumsum(axis), x, ulp, near)
    check(lambda x: x.softmax(axis), t.softmax(axis), x, ulp, near)
    check(lambda x: x.topk(k, axis).values, t.topk(k, axis).values, x, 0)


@few
@given(shape=shapes, seed=st.integers(0, 99), data=st.data())
def test_cutting_and_joining_is_torch_s(
    shape: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    count = data.draw(st.integers(1, shape[axis]))
    x = random(*shape, seed=seed)
    t = torch.from_numpy(x)
    check(lambda x: F.cat([x, x, x], axis), torch.cat([t, t, t], axis), x, 0)
    check(lambda x: F.stack([x, x], axis), torch.stack([t, t], axis), x, 0)
    for place, part in enumerate(t.chunk(count, axis)):
        check(lambda x, i=place: x.chunk(count, axis)[i], part, x, 0)
    for place, part in enumerate(t.split(count, axis)):
        check(lambda x, i=place: x.split(count, axis)[i], part, x, 0)
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=2))
    check(lambda x: F.pad(x, pads, value=2.0), TF.pad(t, pads, value=2.0), x, 0)


@few
@given(data=st.data())
def test_conv1d_is_torch_s(data: st.DataObject) -> None:
    groups, inner, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    size, stride, dilation = (data.draw(st.integers(1, 3)) for _ in range(3))
    padding = data.draw(st.integers(0, 3))
    batch = data.draw(st.sampled_from([(), (1,), (2,)]))
    x = random(*batch, groups * inner, 11, seed=1)
    w, b = random(groups * outer, inner, size, seed=2), random(groups * outer, seed=3)
    wanted = TF.conv1d(*map(torch.from_numpy, (x, w, b)), stride, padding, dilation, groups)
    check(lambda x: F.conv1d(x, w, b, stride, padding, dilation, groups), wanted, x, 32, 1e-6)


@pytest.mark.parametrize("dialect", ["iron", "standard"])
def test_a_body_of_many_functions_runs_on_stock_onnxruntime(dialect: str) -> None:
    def body(self: Any, x: Any, ids: Any) -> Any:
        rows = x[ids % 4]
        scores = (rows @ x.T).softmax(0)
        best = scores.topk(2)
        mask = F.one_hot(best.indices[:, 0], 4).to(x.dtype)
        return {
            "y": F.cat([scores * mask, F.tanh(rows)[:, ::2]], 1).cumsum(1),
            "i": (ids // 3 - 2 * best.indices[:, 1].to("int32")).maximum(ids),
        }

    x, ids = random(4, 8), np.array([5, 2, 3, 0, 7], np.int32)
    trace = Network(body).trace(x=(x.shape, FLOAT32), ids=(ids.shape, np.int32))
    wanted = Network(body).reference(x, ids)
    results = Exported(trace, dialect=dialect)(x=x, ids=ids)
    for name, array in wanted.items():
        np.testing.assert_allclose(results[name], array, rtol=2e-5, atol=1e-6)


def test_mixed_precision_is_written_with_to() -> None:
    x = random(4, 8).astype(BFLOAT16)
    graph = Network(lambda self, x: (x.to(torch.float32) / 3).to(x.dtype))
    np.testing.assert_array_equal(graph(x), (x.astype(np.float32) / 3).astype(BFLOAT16))
