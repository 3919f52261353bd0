"""The CPU kernels over rows: norms, softmax, sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.signal
import scipy.special
import torch
from cpu_kernels import (
    BF16,
    EPS,
    F32,
    REAL,
    assert_same_bits,
    narrow,
    normal,
    run,
    steps_apart,
    wide,
)

from onnx_iron.kernels import run_kernel

WIDTHS = [1, 7, 8, 31, 32, 33, 64, 576, 2048]


@REAL
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", ["RMSNorm", "RMSNormalization"])
def test_rms_norm_is_float64s(op: str, width: int, dtype: np.dtype) -> None:
    x, weight = normal(6, width, dtype=dtype), normal(width, dtype=dtype, seed=1)
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + np.float32(1e-5))
    got = run(op, [x, weight], x.shape, dtype)
    if dtype == F32:
        np.testing.assert_allclose(got, exact * weight, rtol=5e-7)
    else:
        # The norm is rounded, then the product; a norm near a tie may go the other way.
        normed = narrow(exact, dtype)
        assert steps_apart(got, narrow(wide(normed) * wide(weight), dtype)) <= 2
        assert steps_apart(run("RMSNorm", [x], x.shape, dtype), normed) <= 1


def test_rms_norm_in_bfloat16_is_rounded_before_it_meets_the_weight() -> None:
    # Small integers: their squares and the mean of 64 of them are exact in any order.
    x = np.random.default_rng(5).integers(-9, 10, (40, 64)).astype(BF16)
    weight = normal(64, dtype=BF16, seed=1)
    mean = (wide(x) ** 2).mean(-1, keepdims=True, dtype=np.float32)
    normed = narrow(wide(x) * (1 / np.sqrt(mean + np.float32(1e-5))), BF16)
    expected = narrow(wide(normed) * wide(weight), BF16)
    assert_same_bits(run("RMSNorm", [x, weight], x.shape, BF16), expected)


@REAL
@pytest.mark.parametrize("width", WIDTHS)
def test_layer_norm_is_float64s_and_torchs(width: int, dtype: np.dtype) -> None:
    x = normal(6, width, dtype=dtype) + np.asarray(2, dtype)
    weight, bias = normal(width, dtype=dtype, seed=1), normal(width, dtype=dtype, seed=2)
    exact = [torch.tensor(a.astype(np.float64)) for a in (x, weight, bias)]
    epsilon = float(np.float32(1e-3))
    for op, inputs in (
        ("LayerNorm", [x, weight]),
        ("LayerNorm", [x]),
        ("LayerNormalization", [x, weight, bias]),
    ):
        expected = torch.nn.functional.layer_norm(
            exact[0], (width,), *exact[1 : len(inputs)], eps=epsilon
        )
        got = run(op, inputs, x.shape, dtype, epsilon=1e-3)
        # The mean of values around 2 is off by its own rounding.
        atol = 2e-5 if width == 1 else 2e-6
        np.testing.assert_allclose(
            got.astype(np.float64), expected.numpy(), rtol=4e-7 + EPS[dtype], atol=atol
        )


@REAL
@pytest.mark.parametrize("width", WIDTHS)
def test_softmax_and_sums_are_float64s(width: int, dtype: np.dtype) -> None:
    x = normal(6, width, dtype=dtype) * np.asarray(4, dtype)
    exact = x.astype(np.float64)
    got = run("Softmax", [x], x.shape, dtype).astype(np.float64)
    # The difference to the largest is rounded, which the exponential makes relative.
    np.testing.assert_allclose(got, scipy.special.softmax(exact, -1), rtol=3e-6 + EPS[dtype])
    for op, total in (("ReduceSum", exact.sum(-1)), ("ReduceMean", exact.mean(-1))):
        scale = np.abs(exact).sum(-1) if op == "ReduceSum" else np.abs(exact).mean(-1)
        got = run(op, [x], (6,), dtype, keepdims=0).astype(np.float64)
        assert (np.abs(got - total) <= scale * 2e-7 + np.abs(total) * EPS[dtype]).all()


@REAL
@pytest.mark.parametrize("width", [1, 7, 8, 9, 15, 17])
def test_softmax_is_finite_wherever_a_rows_largest_element_stands(
    width: int, dtype: np.dtype
) -> None:
    x = (np.eye(width) * 1000).astype(dtype)  # exp(1000) has no float32
    assert_same_bits(run("Softmax", [x], x.shape, dtype), np.eye(width).astype(dtype))


@REAL
def test_softmax_on_infinities_and_nan_is_torchs(dtype: np.dtype) -> None:
    inf, nan = math.inf, math.nan
    rows = [[-inf, 0, 1], [inf, 0, 1], [-inf] * 3, [nan, 0, 1], [1, nan, 0], [1e4, -1e4, 0]]
    x = np.array(rows, dtype)
    expected = torch.softmax(torch.tensor(wide(x)), -1).numpy()
    got = wide(run("Softmax", [x], x.shape, dtype))
    np.testing.assert_allclose(got, expected, rtol=2 * EPS[dtype])


@REAL
@pytest.mark.parametrize("op", ["RMSNorm", "LayerNorm", "Softmax"])
def test_a_norm_may_write_over_its_input(op: str, dtype: np.dtype) -> None:
    x = normal(9, 77, dtype=dtype)
    expected = run(op, [x], x.shape, dtype)
    run_kernel(op, [x], [x])
    assert_same_bits(x, expected)


STEADY_ROWS = {
    "constant": np.repeat(normal(20, 1), 777, 1),
    "constant far from zero": np.full((4, 768), 1e4 + 1 / 3),
    "two neighbours far from zero": 1e4 + 1e-3 * (np.abs(normal(8, 768)) > 1),
    "one entry apart": 1e4 + 1e-3 * (np.arange(768) == 5)[None],
    "far from zero": 1e4 + normal(8, 768),
    "larger than their sum may be": np.full((2, 768), 3e38),
}


@REAL
@pytest.mark.parametrize("epsilon", [1e-12, 1e-5])
@pytest.mark.parametrize("rows", STEADY_ROWS)
def test_layer_norm_of_rows_that_hardly_vary_is_float64s(
    rows: str, epsilon: float, dtype: np.dtype
) -> None:
    x = narrow(STEADY_ROWS[rows], dtype)
    given = torch.tensor(x.astype(np.float64))
    expected = torch.nn.functional.layer_norm(
        given, x.shape[1:], eps=float(np.float32(epsilon))
    ).numpy()
    got = run("LayerNorm", [x], x.shape, dtype, epsilon=epsilon)
    np.testing.assert_allclose(
        got.astype(np.float64), expected, rtol=1e-6 + EPS[dtype], atol=1e-6 * np.abs(expected).max()
    )
    assert_same_bits(run("LayerNorm", [x[1:]], x[1:].shape, dtype, epsilon=epsilon), got[1:])


@REAL
@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 1), (5, 7), (1, 1, 1, 7)], ids=str)
def test_the_standard_norms_broadcast_scale_and_bias(
    shape: tuple[int, ...], axis: int, dtype: np.dtype
) -> None:
    if axis == -1 and len(shape) == 2:
        pytest.skip("the last axis has one dimension")
    x = normal(3, 5, 7, dtype=dtype)
    scale, bias = normal(*shape, dtype=dtype, seed=1), normal(*shape, dtype=dtype, seed=2)
    axes = tuple(range(axis % 3, 3))
    exact = x.astype(np.float64)
    centred = exact - exact.mean(axes, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + np.float32(1e-5))
    expected = (normed * scale.astype(np.float64) + bias.astype(np.float64)).reshape(x.shape)
    got = run("LayerNormalization", [x, scale, bias], x.shape, dtype, axis=axis)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=1e-6 + EPS[dtype], atol=2e-6)
    normed = exact / np.sqrt((exact**2).mean(axes, keepdims=True) + np.float32(1e-5))
    got = run("RMSNormalization", [x, scale], x.shape, dtype, axis=axis)
    np.testing.assert_allclose(
        got.astype(np.float64),
        (normed * scale.astype(np.float64)).reshape(x.shape),
        rtol=1e-6 + 2.1 * EPS[dtype],
    )


@REAL
@pytest.mark.parametrize("op", ["RMSNorm", "LayerNorm"])
def test_norms_on_infinities_and_nan_are_torchs(op: str, dtype: np.dtype) -> None:
    inf, nan = math.inf, math.nan
    x = np.array([[-inf, 0, 1], [inf, 0, 1], [-inf] * 3, [nan, 0, 1], [0, 0, 0]], dtype)
    norm = {"RMSNorm": torch.nn.functional.rms_norm, "LayerNorm": torch.nn.functional.layer_norm}
    expected = norm[op](torch.tensor(wide(x)), (3,), eps=1e-5).numpy()
    np.testing.assert_array_equal(wide(run(op, [x], x.shape, dtype)), expected)
