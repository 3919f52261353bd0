"""The CPU kernels, one by one, against numpy, scipy and torch."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.signal
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_iron.kernels import cpu_path, kernel_names, library_path, run_kernel

F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)
I32 = np.dtype(np.int32)
I64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
REAL = pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
# Relative size of one rounding.
EPS = {F32: 2.0**-24, BF16: 2.0**-8}


def normal(*shape: int, dtype: np.dtype = F32, seed: int = 0) -> np.ndarray:
    """Standard normal values, the same for the same arguments."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """Exactly, as float32."""
    return x.astype(np.float32)


def narrow(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rounded to float32, then to dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(np.float32).astype(dtype)


def bits(x: np.ndarray) -> np.ndarray:
    """The array's bits; one pattern for all NaN."""
    words = np.ascontiguousarray(x).view(
        {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize]
    )
    if x.dtype in (F32, BF16):
        words = np.where(np.isnan(wide(x)), words.dtype.type(-1 % 2 ** (8 * x.itemsize)), words)
    return words


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(bits(got), bits(expected))


def steps_apart(a: np.ndarray, b: np.ndarray) -> int:
    """The largest distance in representable numbers; NaN only equals NaN."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(np.isnan(wide(a)), np.isnan(wide(b)))
    there = ~np.isnan(wide(a))
    half = 1 << (8 * a.itemsize - 1)

    def place(x: np.ndarray) -> np.ndarray:
        words = bits(x[there]).astype(np.int64)
        return np.where(words >= half, half - words, words)

    return int(np.abs(place(a) - place(b)).max(initial=0))


def run(
    op: str,
    inputs: Sequence[np.ndarray | None],
    shape: Sequence[int],
    dtype: np.dtype,
    threads: int = 1,
    **attributes: Any,
) -> np.ndarray:
    """An operator with one output."""
    return run_kernel(op, inputs, [(tuple(shape), dtype)], attributes, threads)[0]


def scalar(value: int) -> np.ndarray:
    return np.array(value, np.int32)


# -- one case of every kernel, and what holds for all -----------------------------------------


@dataclass
class Case:
    op: str
    inputs: Sequence[np.ndarray | None]
    outputs: Sequence[tuple[tuple[int, ...], np.dtype]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op}{self.label}-{self.outputs[0][1]}"

    def run(self, outputs: Sequence[Any] | None = None, threads: int = 1) -> list[np.ndarray]:
        return run_kernel(self.op, self.inputs, outputs or self.outputs, self.attributes, threads)


UNARY = [
    "SiLU",
    "GELU",
    "Sigmoid",
    "Tanh",
    "Relu",
    "Sqrt",
    "Exp",
    "Erf",
    "Neg",
    "Reciprocal",
    "Abs",
]
BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"]


def real_cases(dtype: np.dtype) -> list[Case]:
    """Large enough for several threads, with sizes that are no multiples of anything."""

    def x(*shape: int, seed: int = 0) -> np.ndarray:
        return normal(*shape, dtype=dtype, seed=seed)

    def out(*shape: int) -> list[tuple[tuple[int, ...], np.dtype]]:
        return [(shape, dtype)]

    rows = scalar(250)
    conv = [((301, 77), dtype), ((2, 77), dtype)]
    return [
        *(Case(op, [np.abs(x(301, 203))], out(301, 203)) for op in UNARY),
        Case("GELU", [x(301, 203)], out(301, 203), {"approximate": "tanh"}, "-tanh"),
        *(Case(op, [np.abs(x(301, 203)), x(203)], out(301, 203)) for op in BINARY),
        Case("Add", [x(31, 1, 77), x(31, 43, 1)], out(31, 43, 77), {}, "-outer"),
        Case("Where", [x(301, 203) > 0, x(203), x(301, 1)], out(301, 203)),
        Case("Cast", [x(301, 203)], [((301, 203), F32 if dtype == BF16 else BF16)]),
        Case("Copy", [x(701, 403)], out(701, 403)),
        Case("Transpose", [x(301, 203)], out(203, 301), {"perm": [1, 0]}),
        Case("Concat", [x(301, 3), x(301, 200)], out(301, 203), {"axis": 1}),
        Case("Slice", [x(301, 403)], out(301, 201), {"starts": [401], "axes": [1], "steps": [-2]}),
        Case("Gather", [x(50, 203), np.arange(-50, 250) % 50], out(300, 203), {"axis": 0}),
        Case("Embedding", [x(50, 203), np.arange(300, dtype=np.int32) % 50], out(300, 203)),
        Case("Narrow", [x(301, 203), scalar(50), rows], out(280, 203), {"length": 280}),
        Case("SliceScatter", [x(401, 203), x(301, 203, seed=1), scalar(90), rows], out(401, 203)),
        Case("Softmax", [x(301, 203)], out(301, 203)),
        Case("ReduceMean", [x(301, 203)], out(301, 1)),
        Case("ReduceSum", [x(301, 203)], out(301), {"keepdims": 0}),
        Case("RMSNorm", [x(301, 203), x(203)], out(301, 203)),
        Case("RMSNorm", [x(301, 203)], out(301, 203), {}, "-bare"),
        Case("LayerNorm", [x(301, 203), x(203)], out(301, 203)),
        Case("RMSNormalization", [x(301, 203), x(203)], out(301, 203)),
        Case("LayerNormalization", [x(301, 203), x(203), x(203, seed=1)], out(301, 203)),
        Case("RoPE", [x(906, 66), x(302, 66)], out(906, 66)),
        Case("RoPE", [x(906, 66), wide(x(302, 66))], out(906, 66), {"interleaved": 1}, "-pairs"),
        Case(
            "CausalConv1d",
            [x(301, 77), x(3, 77), x(2, 77), x(77), rows],
            conv,
            {"activation": "silu"},
        ),
        Case(
            "CausalConv1d",
            [x(1, 30001), x(3, 30001), x(2, 30001)],
            [((1, 30001), dtype), ((2, 30001), dtype)],
            {},
            "-step",
        ),
        Case("GEMV", [x(301, 1203), x(1203)], out(301)),
        Case("GEMM", [x(101, 203), x(157, 203)], out(101, 157), {"b_col_maj": 1}),
        Case("GEMM", [x(101, 303), x(303, 157)], out(101, 157), {}, "-row-major"),
        Case("GEMM", [x(1, 303), x(303, 1571)], out(1, 1571), {}, "-row-major-one"),
        Case(
            "ProjectionGEMM",
            [x(101, 203), x(157, 203)],
            out(101, 157),
            {"b_col_maj": 1, "epilogue": "gelu"},
        ),
        Case("MatMul", [x(5, 1, 33, 65), x(7, 65, 41)], out(5, 7, 33, 41)),
        Case(
            "Attention",
            [x(50, 6, 20), x(401, 2, 20), x(401, 2, 12), scalar(340), scalar(400)],
            out(50, 6, 12),
            {"is_causal": 1},
        ),
        Case("Attention", [x(1, 6, 64), x(901, 2, 64), x(901, 2, 64)], out(1, 6, 64), {}, "-step"),
    ]


def integer_cases(dtype: np.dtype) -> list[Case]:
    a = (np.arange(60000) - 30000).astype(dtype)
    b = (np.arange(60000) % 23 - 11).astype(dtype)
    b[b == 0] = 7
    return [
        Case(op, [a, b], [(a.shape, dtype)])
        for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")
    ]


CASES = [
    case
    for cases in (real_cases(F32), real_cases(BF16), integer_cases(I32), integer_cases(I64))
    for case in cases
]
EVERY = pytest.mark.parametrize("case", CASES, ids=str)


def test_every_kernel_has_a_case() -> None:
    assert {case.op for case in CASES} == set(kernel_names())


@EVERY
def test_the_number_of_threads_does_not_change_a_bit(case: Case) -> None:
    for alone, shared in zip(case.run(), case.run(threads=3), strict=True):
        assert_same_bits(shared, alone)


@EVERY
def test_every_element_of_the_outputs_is_written(case: Case) -> None:
    def filled(byte: int) -> list[np.ndarray]:
        outputs = []
        for shape, dtype in case.outputs:
            size = math.prod(shape) * dtype.itemsize
            outputs.append(np.full(size, byte, np.uint8).view(dtype).reshape(shape))
        return case.run(outputs)

    for one, other in zip(filled(0xFF), filled(0), strict=True):
        assert one.tobytes() == other.tobytes()


@EVERY
def test_no_input_is_written_to(case: Case) -> None:
    before = [None if x is None else x.copy() for x in case.inputs]
    case.run()
    for now, then in zip(case.inputs, before, strict=True):
        if now is not None and then is not None:
            assert now.tobytes() == then.tobytes()


# -- functions of one operand -----------------------------------------------------------------


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    # erfc: in the lower tail 1 + erf has no digits left.
    return 0.5 * x * scipy.special.erfc(-x / math.sqrt(2))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    # (1 + tanh(u)) / 2 is logistic(2 u), which has digits left in the lower tail.
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, tuple[str, dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "silu": ("SiLU", {}, silu),
    "gelu": ("GELU", {}, gelu),
    "gelu-none": ("GELU", {"approximate": "none"}, gelu),
    "gelu-tanh": ("GELU", {"approximate": "tanh"}, gelu_tanh),
    "sigmoid": ("Sigmoid", {}, logistic),
    "tanh": ("Tanh", {}, np.tanh),
    "exp": ("Exp", {}, np.exp),
    "erf": ("Erf", {}, scipy.special.erf),
    "relu": ("Relu", {}, lambda x: np.where(x < 0, 0.0, x)),
    "sqrt": ("Sqrt", {}, np.sqrt),
    "neg": ("Neg", {}, np.negative),
    "reciprocal": ("Reciprocal", {}, np.reciprocal),
    "abs": ("Abs", {}, np.abs),
}
EVERY_FUNCTION = pytest.mark.parametrize("name", FUNCTIONS)


@EVERY_FUNCTION
def test_a_function_of_bfloat16_is_right_for_all_65536_values(name: str) -> None:
    op, attributes, formula = FUNCTIONS[name]
    x = np.arange(65536, dtype=np.uint16).view(BF16)
    with np.errstate(all="ignore"):
        expected = narrow(formula(x.astype(np.float64)), BF16)
    assert_same_bits(run(op, [x], x.shape, BF16, **attributes), expected)


@EVERY_FUNCTION
def test_a_function_of_float32_is_within_one_step_of_float64_everywhere(name: str) -> None:
    op, attributes, formula = FUNCTIONS[name]
    everywhere = np.random.default_rng(1).integers(0, 2**32, 300_000, np.uint32).view(F32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38, 709.0, -709.0]
    x = np.concatenate(
        [
            everywhere,
            np.linspace(-120, 120, 300_001, dtype=np.float32),
            np.linspace(-1.5, 1.5, 300_001, dtype=np.float32),
            np.array(special, np.float32),
        ]
    )
    with np.errstate(all="ignore"):
        expected = narrow(formula(x.astype(np.float64)), F32)
    assert steps_apart(run(op, [x], x.shape, F32, **attributes), expected) <= 1


@REAL
def test_silu_and_gelu_are_torchs(dtype: np.dtype) -> None:
    x = normal(4001, dtype=dtype) * np.asarray(3, dtype)
    given = torch.tensor(x.astype(np.float64))
    silu_, gelu_ = torch.nn.functional.silu, torch.nn.functional.gelu
    for got, expected in (
        (run("SiLU", [x], x.shape, dtype), silu_(given)),
        (run("GELU", [x], x.shape, dtype), gelu_(given)),
        (run("GELU", [x], x.shape, dtype, approximate="tanh"), gelu_(given, approximate="tanh")),
    ):
        np.testing.assert_allclose(
            got.astype(np.float64), expected.numpy(), rtol=2 * EPS[dtype], atol=1e-13
        )


def test_silu_of_minus_infinity_is_nan_as_in_torch() -> None:
    x = np.array([-np.inf], np.float32)
    assert torch.nn.functional.silu(torch.tensor(x)).isnan().all()
    assert np.isnan(run("SiLU", [x], (1,), F32))


@pytest.mark.parametrize("n", [*range(20), 63, 64, 65])
def test_a_function_leaves_what_is_behind_its_output(n: int) -> None:
    for dtype in (F32, BF16):
        buffer = np.full(n + 16, 7, dtype)
        run_kernel("Neg", [normal(n, dtype=dtype)], [buffer[:n]])
        assert (buffer[n:] == 7).all()


# -- functions of two operands ----------------------------------------------------------------

ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
}
BROADCASTS = [
    ((5, 33), (5, 33)),
    ((5, 33), (33,)),
    ((33,), (5, 33)),
    ((5, 33), ()),
    ((), (5, 33)),
    ((5, 33), (5, 1)),
    ((5, 1), (1, 33)),
    ((4, 1, 17), (3, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((2, 1, 4, 1), (1, 3, 1, 5)),
    ((1, 1), (1,)),
    ((), ()),
    ((0, 3), (3,)),
    ((7, 1), (1, 0)),
]


@REAL
@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_arithmetic_has_numpys_bits_and_broadcasting(
    op: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: np.dtype
) -> None:
    a, b = normal(*shapes[0], dtype=dtype), normal(*shapes[1], dtype=dtype, seed=1)
    expected = narrow(ARITHMETIC[op](wide(a), wide(b)), dtype)
    assert_same_bits(run(op, [a, b], expected.shape, dtype), expected)


@REAL
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_on_zeros_infinities_and_nan_is_numpys(op: str, dtype: np.dtype) -> None:
    values = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 3e38, 1e-40], dtype)
    a, b = (x.reshape(-1).copy() for x in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = narrow(ARITHMETIC[op](wide(a), wide(b)), dtype)
    got = run(op, [a, b], a.shape, dtype)
    np.testing.assert_array_equal(wide(got), wide(expected))


@REAL
def test_arithmetic_may_write_over_an_operand(dtype: np.dtype) -> None:
    a, b = normal(50, 77, dtype=dtype), normal(77, dtype=dtype)
    expected = narrow(wide(a) * wide(b), dtype)
    run_kernel("Mul", [a, b], [a])
    assert_same_bits(a, expected)


@REAL
def test_powers_are_float64s_rounded(dtype: np.dtype) -> None:
    a = np.abs(normal(1000, dtype=dtype))
    for exponent in (2.0, 0.5, -1.0, 3.0, 0.0):
        b = np.array(exponent, dtype)
        expected = narrow(np.power(a.astype(np.float64), exponent), dtype)
        assert_same_bits(run("Pow", [a, b], a.shape, dtype), expected)
    b = normal(1000, dtype=dtype, seed=1)
    expected = narrow(np.power(a.astype(np.float64), b.astype(np.float64)), dtype)
    assert steps_apart(run("Pow", [a, b], a.shape, dtype), expected) <= 1


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
def test_integer_arithmetic_is_numpys_but_div_truncates(dtype: np.dtype) -> None:
    ends = np.iinfo(dtype)
    values = np.array([0, 1, -1, 2, 7, -7, 100, ends.min, ends.max], dtype)
    a, b = (x.reshape(-1).copy() for x in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        for op in ("Add", "Sub", "Mul", "Max", "Min"):
            assert_same_bits(run(op, [a, b], a.shape, dtype), ARITHMETIC[op](a, b))
        a, b = a[b != 0], b[b != 0]
        assert_same_bits(run("Mod", [a, b], a.shape, dtype), np.mod(a, b))
        # Python's integers do not overflow; the one quotient that does wraps around.
        quotients = [
            abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)
            for p, q in zip(a, b, strict=True)
        ]
        wrapped = [(q - ends.min) % 2**ends.bits + ends.min for q in quotients]
        assert_same_bits(run("Div", [a, b], a.shape, dtype), np.array(wrapped, dtype))


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integer_division_by_zero_is_an_error(op: str) -> None:
    out = np.full(3, 77, np.int32)
    with pytest.raises(ValueError, match=rf"^{op}: b\[1\] is 0, expected divisors other than 0"):
        run_kernel(op, [np.arange(3, dtype=np.int32), np.array([1, 0, 2], np.int32)], [out])
    assert (out == 77).all()


@pytest.mark.parametrize("dtype", [F32, BF16, I32, I64, BOOL], ids=str)
def test_where_chooses_and_broadcasts(dtype: np.dtype) -> None:
    condition = normal(4, 1, 19) > 0
    a, b = normal(3, 1, seed=1).astype(dtype), normal(4, 3, 19, seed=2).astype(dtype)
    expected = np.where(condition, a, b)
    assert_same_bits(run("Where", [condition, a, b], (4, 3, 19), dtype), expected)


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.product([F32, BF16, I32, I64, BOOL], repeat=2)), ids=str
)
def test_cast_is_numpys(source: np.dtype, target: np.dtype) -> None:
    values = np.array([0, -0.0, 1, -1, 0.5, -2.75, 2.5, 100.5, 16777217, 1e9, -3.0], np.float64)
    x = values.astype(source)
    expected = wide(x).astype(target) if source == BF16 else x.astype(target)
    assert_same_bits(run("Cast", [x], x.shape, target), expected)


def test_cast_of_float32_to_bfloat16_rounds_as_ml_dtypes_everywhere() -> None:
    x = np.random.default_rng(2).integers(0, 2**32, 1_000_003, np.uint32).view(F32)
    with np.errstate(all="ignore"):
        expected = x.astype(BF16)
    got = run("Cast", [x], x.shape, BF16)
    # NaN has ml_dtypes' pattern too.
    np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
def test_cast_out_of_the_integers_range_gives_the_smallest(dtype: np.dtype) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32)
    assert (run("Cast", [x], x.shape, dtype) == np.iinfo(dtype).min).all()


def test_any_byte_but_zero_is_true() -> None:
    x = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    for dtype in (F32, I64, BOOL):
        got = run("Cast", [x], x.shape, dtype)
        np.testing.assert_array_equal(got.view(np.uint8) if dtype == BOOL else got, [0, 1, 1, 1])


# -- rows: norms, softmax, sums ---------------------------------------------------------------

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


# -- rope, causal convolution -----------------------------------------------------------------


@REAL
@pytest.mark.parametrize("angle_dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [2, 6, 14, 16, 18, 32, 46, 64, 128])
def test_rope_has_numpys_bits(
    width: int, interleaved: int, angle_dtype: np.dtype, dtype: np.dtype
) -> None:
    if dtype == F32 and angle_dtype == BF16:
        with pytest.raises(ValueError, match=r"^RoPE: angles is bfloat16, expected float32"):
            run("RoPE", [normal(2, 2), normal(1, 2, dtype=BF16)], (2, 2), F32)
        return
    x, angles = normal(6, width, dtype=dtype), normal(2, width, dtype=angle_dtype, seed=1)
    cos, sin = (np.repeat(wide(angles)[:, i::2], 3, axis=0) for i in (0, 1))
    half = width // 2
    one, two = (
        (np.s_[:, ::2], np.s_[:, 1::2]) if interleaved else (np.s_[:, :half], np.s_[:, half:])
    )
    expected, given = np.empty_like(wide(x)), wide(x)
    expected[one] = given[one] * cos - given[two] * sin
    expected[two] = given[two] * cos + given[one] * sin
    got = run("RoPE", [x, angles], x.shape, dtype, interleaved=interleaved)
    assert_same_bits(got, narrow(expected, dtype))
    run_kernel("RoPE", [x, angles], [x], {"interleaved": interleaved})
    assert_same_bits(x, got)


def convolve(
    x: np.ndarray, taps: np.ndarray, state: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """The float32 sums of a causal convolution, in the promised order."""
    window, length = wide(np.concatenate([state, x], -2)), x.shape[-2]
    total = window[..., :length, :] * wide(taps[0])
    for k in range(1, len(taps)):
        total = total + window[..., k : k + length, :] * wide(taps[k])
    return total if bias is None else total + wide(bias)


@REAL
@pytest.mark.parametrize("channels", [1, 7, 8, 19, 64])
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_causal_conv1d_has_numpys_bits(
    batch: tuple[int, ...], taps: int, channels: int, dtype: np.dtype
) -> None:
    weights, bias = normal(taps, channels, dtype=dtype), normal(channels, dtype=dtype)
    state = normal(*batch, taps - 1, channels, dtype=dtype, seed=1)
    for length in (0, 1, 2, 5, 12):
        x = normal(*batch, length, channels, dtype=dtype, seed=2)
        outputs = [(x.shape, dtype), (state.shape, dtype)]
        y, kept = run_kernel("CausalConv1d", [x, weights, state], outputs)
        assert_same_bits(y, narrow(convolve(x, weights, state, None), dtype))
        window = np.concatenate([state, x], -2)
        assert_same_bits(kept, window[..., length:, :])
        y, kept = run_kernel(
            "CausalConv1d", [x, weights, state, bias], outputs, {"activation": "silu"}
        )
        expected = narrow(silu(convolve(x, weights, state, bias).astype(np.float64)), dtype)
        assert steps_apart(y, expected) <= 1
        assert_same_bits(kept, window[..., length:, :])
        for rows in range(length + 1):
            y_bounded, kept = run_kernel(
                "CausalConv1d", [x, weights, state, None, scalar(rows)], outputs
            )
            assert_same_bits(kept, window[..., rows : rows + taps - 1, :])
            assert_same_bits(y_bounded, narrow(convolve(x, weights, state, None), dtype))


@settings(max_examples=30, deadline=None)
@given(
    chunks=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    taps=st.integers(1, 6),
    padding=st.integers(0, 3),
    threads=st.sampled_from([1, 3]),
    dtype=st.sampled_from([F32, BF16]),
)
def test_causal_conv1d_gives_the_same_bits_for_any_chunks_with_the_state_in_place(
    chunks: list[int], taps: int, padding: int, threads: int, dtype: np.dtype
) -> None:
    channels, length = 21, sum(chunks)
    x, weights = normal(length, channels, dtype=dtype), normal(taps, channels, dtype=dtype)
    first = normal(taps - 1, channels, dtype=dtype, seed=1)
    outputs = [(x.shape, dtype), (first.shape, dtype)]
    attributes = {"activation": "silu"}
    whole, last = run_kernel("CausalConv1d", [x, weights, first], outputs, attributes)
    state, parts, at = first.copy(), [], 0
    for rows in chunks:
        # What pads a chunk must not matter.
        chunk = np.full((rows + padding, channels), np.nan, dtype)
        chunk[:rows] = x[at : at + rows]
        given = [chunk, weights, state, None, scalar(rows)]
        y, _ = run_kernel("CausalConv1d", given, [(chunk.shape, dtype), state], attributes, threads)
        parts.append(y[:rows])
        at += rows
    assert_same_bits(np.concatenate(parts), whole)
    assert_same_bits(state, last)


def test_causal_conv1d_is_scipys_filter() -> None:
    x, taps = normal(200, 5), normal(4, 5)
    y, _ = run_kernel(
        "CausalConv1d", [x, taps, np.zeros((3, 5), F32)], [(x.shape, F32), ((3, 5), F32)]
    )
    for channel in range(5):
        expected = scipy.signal.lfilter(
            taps[::-1, channel].astype(np.float64), [1.0], x[:, channel]
        )
        np.testing.assert_allclose(y[:, channel], expected, atol=2e-6)


# -- matrix products --------------------------------------------------------------------------


def assert_product(got: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> None:
    """got is a @ b but for float32's rounding of the sums and one rounding of the result."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    exact, scale = left @ right, np.abs(left) @ np.abs(right)
    length = left.shape[-1]
    bound = scale * 2.0**-24 * (length / 8 + 8) + np.abs(exact) * EPS[dtype] + 1e-30
    assert (np.abs(got.astype(np.float64) - exact) <= bound).all()


LENGTHS = [0, 1, 5, 8, 13, 64, 100, 576, 767, 769, 1536, 2305]


@REAL
@pytest.mark.parametrize("k", LENGTHS)
def test_products_are_float64s(k: int, dtype: np.dtype) -> None:
    for m, n in ((1, 1), (1, 37), (2, 9), (3, 8), (7, 20), (100, 33), (97, 3)):
        a, b = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1)
        got = run("GEMM", [a, b], (m, n), dtype, b_col_maj=1, precision="high")
        assert_product(got, a, b.T, dtype)
        turned = np.ascontiguousarray(b.T)
        assert_product(run("GEMM", [a, turned], (m, n), dtype), a, turned, dtype)
        assert_product(run("ProjectionGEMM", [a, turned], (m, n), dtype), a, turned, dtype)
    weight, x = normal(37, k, dtype=dtype), normal(k, dtype=dtype, seed=1)
    got = run("GEMV", [weight, x], (37,), dtype)
    assert_product(got, weight, x, dtype)
    assert_same_bits(run("GEMV", [weight, x[None]], (1, 37), dtype), got[None])


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 110),
    n=st.integers(1, 40),
    k=st.integers(0, 200) | st.sampled_from([767, 768, 769, 1536, 1600]),
    threads=st.sampled_from([1, 3]),
    dtype=st.sampled_from([F32, BF16]),
    op=st.sampled_from(["GEMM", "ProjectionGEMM"]),
)
def test_a_row_has_gemvs_bits_however_many_rows_there_are(
    m: int, n: int, k: int, threads: int, dtype: np.dtype, op: str
) -> None:
    a, b = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1)
    got = run(op, [a, b], (m, n), dtype, threads, b_col_maj=1)
    for row in {0, 1 % m, m // 2, m - 1}:
        assert_same_bits(got[row], run("GEMV", [b, a[row]], (n,), dtype))
    turned = np.ascontiguousarray(b.T)
    row_major = run(op, [a, turned], (m, n), dtype, threads)
    assert_same_bits(row_major[:1], run(op, [a[:1], turned], (1, n), dtype))


def test_a_product_sums_in_the_promised_order() -> None:
    # Few mantissa bits, so that float64 holds every product and sum exactly and rounds as fma does.
    m, n, k = 4, 6, 805
    grid = np.random.default_rng(3)
    a, b = (grid.integers(-255, 256, shape).astype(np.float32) / 64 for shape in ((m, k), (n, k)))
    a[:, ::7] *= np.float32(2.0**-9)
    lanes = np.zeros((m, n, 8), np.float32)
    wide_a, wide_b = (np.pad(x, ((0, 0), (0, -k % 8))) for x in (a, b))
    for at in range(0, k, 8):
        left, right = wide_a[:, None, at : at + 8], wide_b[None, :, at : at + 8]
        if cpu_path() != "portable":
            exact = left.astype(np.float64) * right.astype(np.float64) + lanes.astype(np.float64)
            lanes = exact.astype(np.float32)
        else:
            lanes = lanes + left * right
    four = lanes[..., :4] + lanes[..., 4:]
    expected = (four[..., 0] + four[..., 2]) + (four[..., 1] + four[..., 3])
    assert_same_bits(run("GEMM", [a, b], (m, n), F32, b_col_maj=1), expected)
    assert_same_bits(run("GEMV", [b, a[1]], (n,), F32), expected[1])


@REAL
@pytest.mark.parametrize(
    ("epilogue", "formula"), [("gelu", gelu), ("silu", silu), ("sigmoid", logistic)]
)
def test_an_epilogue_works_on_the_float32_sums(
    epilogue: str, formula: Callable[[np.ndarray], np.ndarray], dtype: np.dtype
) -> None:
    a, b = normal(5, 40, dtype=dtype), normal(19, 40, dtype=dtype, seed=1)
    sums = run("GEMM", [wide(a), wide(b)], (5, 19), F32, b_col_maj=1)
    expected = narrow(formula(sums.astype(np.float64)), dtype)
    for rows in (1, 5):
        got = run(
            "ProjectionGEMM", [a[:rows], b], (rows, 19), dtype, b_col_maj=1, epilogue=epilogue
        )
        assert steps_apart(got, expected[:rows]) <= 1
    turned = np.ascontiguousarray(b.T)
    got = run("ProjectionGEMM", [a, turned], (5, 19), dtype, epilogue=epilogue)
    np.testing.assert_allclose(wide(got), wide(expected), rtol=2 * EPS[dtype], atol=1e-5)


@REAL
@pytest.mark.parametrize(
    "shapes",
    [
        ((7,), (7,)),
        ((7,), (7, 9)),
        ((5, 7), (7,)),
        ((2, 5, 7), (7, 19)),
        ((2, 5, 7), (1, 7, 19)),
        ((1, 5, 7), (3, 7, 19)),
        ((2, 1, 5, 7), (3, 7, 19)),
        ((3, 1, 7), (3, 7, 100)),
        ((4, 7), (2, 7, 19)),
        ((2, 0, 7), (2, 7, 19)),
        ((2, 5, 0), (2, 0, 19)),
        ((0, 5, 7), (7, 19)),
    ],
    ids=str,
)
def test_matmul_is_numpys(shapes: tuple[tuple[int, ...], ...], dtype: np.dtype) -> None:
    a, b = normal(*shapes[0], dtype=dtype), normal(*shapes[1], dtype=dtype, seed=1)
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    got = run("MatMul", [a, b], exact.shape, dtype)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=EPS[dtype] + 1e-6, atol=1e-6)


# -- attention --------------------------------------------------------------------------------


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, limits: Sequence[int], scale: float
) -> np.ndarray:
    """Attention in float64, row t over its first limits[t] keys."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    times, heads, _ = q.shape
    out = np.empty((times, heads, v.shape[2]))
    for t, h in itertools.product(range(times), range(heads)):
        g, seen = h // (heads // k.shape[1]), limits[t]
        weights = scipy.special.softmax(k[:seen, g] @ q[t, h] * scale)
        out[t, h] = weights @ v[:seen, g]
    return out


@REAL
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (9, 3), (5, 1)], ids=str)
@pytest.mark.parametrize("times", [1, 2, 5, 40])
def test_attention_is_float64s(times: int, heads: tuple[int, int], dtype: np.dtype) -> None:
    h, g = heads
    for s, d, dv, position, kv_rows in (
        (40, 8, 8, 0, None),
        (130, 20, 12, 80, 129),
        (300, 64, 64, 260, None),
        (300, 33, 70, 100, 128),
    ):
        q, k = normal(times, h, d, dtype=dtype), normal(s, g, d, dtype=dtype, seed=1)
        v = normal(s, g, dv, dtype=dtype, seed=2)
        bound = s if kv_rows is None else kv_rows
        limits = [min(bound, position + t + 1) for t in range(times)]
        # Keys and values past every limit may hold anything.
        k[max(limits) :], v[max(limits) :] = np.nan, np.inf
        rows = None if kv_rows is None else scalar(kv_rows)
        inputs = [q, k, v, scalar(position), rows]
        got = run("Attention", inputs, (times, h, dv), dtype, is_causal=1)
        expected = attend(q, k, v, limits, 1 / math.sqrt(d))
        np.testing.assert_allclose(
            got.astype(np.float64), expected, rtol=EPS[dtype] + 1e-5, atol=3e-6
        )


@REAL
def test_attention_without_a_mask_is_torchs(dtype: np.dtype) -> None:
    q, k, v = (
        normal(7, 6, 24, dtype=dtype),
        normal(50, 2, 24, dtype=dtype),
        normal(50, 2, 16, dtype=dtype),
    )
    exact = [torch.tensor(x.astype(np.float64)).transpose(0, 1) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*exact, scale=0.3, enable_gqa=True)
    got = run("Attention", [q, k, v], (7, 6, 16), dtype, scale=0.3)
    np.testing.assert_allclose(
        got.astype(np.float64), expected.transpose(0, 1).numpy(), rtol=EPS[dtype] + 1e-5, atol=2e-6
    )


@REAL
def test_a_row_of_attention_has_the_same_bits_alone(dtype: np.dtype) -> None:
    q, k, v = (normal(*s, dtype=dtype) for s in ((60, 6, 40), (300, 2, 40), (300, 2, 40)))
    all_rows = run("Attention", [q, k, v, scalar(230)], q.shape, dtype, 3, is_causal=1)
    for t in (0, 1, 24, 25, 26, 59):
        alone = run(
            "Attention", [q[t : t + 1], k, v, scalar(230 + t)], (1, 6, 40), dtype, is_causal=1
        )
        assert_same_bits(all_rows[t : t + 1], alone)
    few = run("Attention", [q[20:24], k, v, scalar(250)], (4, 6, 40), dtype, is_causal=1)
    assert_same_bits(all_rows[20:24], few)


def test_a_key_that_is_masked_by_minus_infinity_weighs_nothing() -> None:
    q, k, v = np.ones((1, 1, 1), F32), np.zeros((300, 1, 1), F32), normal(300, 1, 1)
    k[:256] = -np.inf
    got = run("Attention", [q, k, v], (1, 1, 1), F32)
    np.testing.assert_allclose(got[0, 0], v[256:, 0].mean(0), rtol=1e-5)
    k[:] = -np.inf
    assert np.isnan(run("Attention", [q, k, v], (1, 1, 1), F32)).all()


# -- moving data ------------------------------------------------------------------------------

DTYPES = pytest.mark.parametrize("dtype", [F32, BF16, I32, I64, BOOL], ids=str)


@DTYPES
def test_transpose_is_numpys(dtype: np.dtype) -> None:
    x = normal(2, 3, 1, 5).astype(dtype)
    for perm in itertools.permutations(range(4)):
        expected = np.ascontiguousarray(x.transpose(perm))
        assert_same_bits(run("Transpose", [x], expected.shape, dtype, perm=perm), expected)
    assert_same_bits(run("Transpose", [x], (5, 1, 3, 2), dtype), np.ascontiguousarray(x.T))


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat_is_numpys(axis: int, dtype: np.dtype) -> None:
    parts = []
    for size in (3, 0, 1, 4):
        shape = [2, 3, 4]
        shape[axis] = size
        parts.append(normal(*shape).astype(dtype))
    expected = np.concatenate(parts, axis)
    assert_same_bits(run("Concat", parts, expected.shape, dtype, axis=axis), expected)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_slice_is_numpys(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    x = normal(*shape)
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    index: list[slice] = [slice(None)] * len(shape)
    starts, steps = [], []
    for axis in axes:
        start = data.draw(st.integers(0, shape[axis] - 1))
        step = data.draw(st.integers(1, 3) | st.integers(-3, -1))
        index[axis] = slice(start, data.draw(st.none() | st.integers(0, shape[axis])), step)
        starts.append(start if data.draw(st.booleans()) else start - shape[axis])
        steps.append(step)
    expected = np.ascontiguousarray(x[tuple(index)])
    got = run("Slice", [x], expected.shape, F32, starts=starts, axes=axes, steps=steps)
    assert_same_bits(got, expected)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_is_numpys_take(axis: int, dtype: np.dtype) -> None:
    x = normal(3, 4, 5).astype(dtype)
    for indices in (
        np.array([[0, 2], [-1, 1]]),
        np.array(-3, np.int32),
        np.zeros((0, 2), np.int64),
    ):
        expected = np.take(x, indices, axis)
        assert_same_bits(run("Gather", [x, indices], expected.shape, dtype, axis=axis), expected)


@REAL
@pytest.mark.parametrize("ids", [I32, I64], ids=str)
def test_embedding_takes_rows(ids: np.dtype, dtype: np.dtype) -> None:
    weight, wanted = normal(9, 7, dtype=dtype), np.array([[0, 8], [3, 3]], ids)
    assert_same_bits(run("Embedding", [weight, wanted], (2, 2, 7), dtype), weight[wanted])


@DTYPES
def test_copy_takes_any_shape_of_as_many_elements(dtype: np.dtype) -> None:
    x = normal(6, 4).astype(dtype)
    assert_same_bits(run("Copy", [x], (3, 8), dtype), x.reshape(3, 8))


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_narrow_reads_at_start_and_repeats_the_last_entry(axis: int, dtype: np.dtype) -> None:
    x = normal(5, 5, 5).astype(dtype)
    shape = [5, 5, 5]
    shape[axis] = 3
    for start, rows in itertools.product(range(6), (None, 0, 1, 3)):
        if start + (3 if rows is None else rows) > 5:
            continue
        expected = np.take(x, np.minimum(np.arange(start, start + 3), 4), axis)
        inputs = [x, scalar(start), None if rows is None else np.array([rows], np.int32)]
        assert_same_bits(run("Narrow", inputs, shape, dtype, axis=axis, length=3), expected)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slice_scatter_writes_at_start_in_place_or_not(axis: int, dtype: np.dtype) -> None:
    shape = [5, 5, 5]
    shape[axis] = 3
    x, src = normal(5, 5, 5).astype(dtype), normal(*shape, seed=1).astype(dtype)
    for start, rows in itertools.product(range(6), (None, 0, 1, 3)):
        count = 3 if rows is None else rows
        if start + count > 5:
            continue
        expected = x.copy()
        to = np.moveaxis(expected, axis, 0)
        to[start : start + count] = np.moveaxis(src, axis, 0)[:count]
        inputs = [x, src, scalar(start), None if rows is None else scalar(rows)]
        assert_same_bits(run("SliceScatter", inputs, x.shape, dtype, axis=axis), expected)
        state = x.copy()
        run_kernel("SliceScatter", [state, *inputs[1:]], [state], {"axis": axis})
        assert_same_bits(state, expected)


@pytest.mark.parametrize(
    "case",
    [
        Case("SiLU", [normal(0)], [((0,), F32)]),
        Case("RMSNorm", [normal(0, 5)], [((0, 5), F32)]),
        Case("Softmax", [normal(3, 0)], [((3, 0), F32)]),
        Case("RoPE", [normal(0, 4), normal(2, 4)], [((0, 4), F32)]),
        Case("GEMM", [normal(0, 3), normal(5, 3)], [((0, 5), F32)], {"b_col_maj": 1}),
        Case("GEMM", [normal(2, 3), normal(3, 0)], [((2, 0), F32)]),
        Case("MatMul", [normal(2, 0, 3), normal(2, 3, 4)], [((2, 0, 4), F32)]),
        Case("Embedding", [normal(5, 3), np.zeros(0, np.int64)], [((0, 3), F32)]),
        Case("Attention", [normal(0, 2, 4), *(normal(9, 2, 4),) * 2], [((0, 2, 4), F32)]),
        Case("Attention", [normal(3, 0, 4), *(normal(9, 2, 4),) * 2], [((3, 0, 4), F32)]),
        Case(
            "CausalConv1d",
            [normal(4, 0), normal(3, 0), normal(2, 0)],
            [((4, 0), F32), ((2, 0), F32)],
        ),
        Case("Transpose", [normal(0, 3)], [((3, 0), F32)]),
        Case("Concat", [normal(0, 3), normal(0, 2)], [((0, 5), F32)], {"axis": 1}),
        Case("Slice", [normal(4, 0)], [((2, 0), F32)], {"starts": [1]}),
    ],
    ids=str,
)
def test_nothing_in_gives_nothing_out(case: Case) -> None:
    for threads in (1, 2):
        assert all(out.size == 0 for out in case.run(threads=threads))


# -- per-call values out of range -------------------------------------------------------------

CONV = [normal(8, 4), normal(3, 4), normal(2, 4), None]
CONV_OUTPUTS = [((8, 4), F32), ((2, 4), F32)]
QKV = [normal(2, 2, 4), normal(9, 2, 4), normal(9, 2, 4)]
BAD_CALLS = [
    (
        Case("CausalConv1d", [*CONV, scalar(9)], CONV_OUTPUTS),
        "CausalConv1d: rows is 9, expected 0..8 (x has 8 rows)",
    ),
    (
        Case("CausalConv1d", [*CONV, scalar(-1)], CONV_OUTPUTS),
        "CausalConv1d: rows is -1, expected 0..8 (x has 8 rows)",
    ),
    (
        Case("Embedding", [normal(5, 3), np.array([1, 0, 5])], [((3, 3), F32)]),
        "Embedding: ids[2] is 5, expected 0..4",
    ),
    (
        Case("Embedding", [normal(5, 3), np.array([-1])], [((1, 3), F32)]),
        "Embedding: ids[0] is -1, expected 0..4",
    ),
    (
        Case("Gather", [normal(5, 3), np.array([4, -6])], [((2, 3), F32)]),
        "Gather: indices[1] is -6, expected -5..4",
    ),
    (
        Case("Attention", [*QKV, scalar(9)], [((2, 2, 4), F32)]),
        "Attention: position is 9, expected 0..8 (key has 9 rows)",
    ),
    (
        Case("Attention", [*QKV, scalar(-1)], [((2, 2, 4), F32)]),
        "Attention: position is -1, expected 0..8 (key has 9 rows)",
    ),
    (
        Case("Attention", [*QKV, None, scalar(0)], [((2, 2, 4), F32)]),
        "Attention: kv_rows is 0, expected 1..9 (key has 9 rows)",
    ),
    (
        Case("Attention", [*QKV, None, scalar(10)], [((2, 2, 4), F32)]),
        "Attention: kv_rows is 10, expected 1..9 (key has 9 rows)",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(0), scalar(4)], [((3, 2), F32)], {"length": 3}),
        "Narrow: rows is 4, expected 0..3",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(6)], [((3, 2), F32)], {"length": 3}),
        "Narrow: start is 6 and rows 3, expected 0 <= start <= 5 (the axis has 8 entries)",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(-1), scalar(0)], [((3, 2), F32)], {"length": 3}),
        "Narrow: start is -1 and rows 0, expected 0 <= start <= 8 (the axis has 8 entries)",
    ),
    (
        Case("SliceScatter", [normal(8, 2), normal(3, 2), scalar(2**31 - 1)], [((8, 2), F32)]),
        "SliceScatter: start is 2147483647 and rows 3, expected 0 <= start <= 5 "
        "(the axis has 8 entries)",
    ),
    (
        Case("SliceScatter", [normal(8, 2), normal(3, 2), scalar(0), scalar(4)], [((8, 2), F32)]),
        "SliceScatter: rows is 4, expected 0..3",
    ),
]


@pytest.mark.parametrize(("case", "message"), BAD_CALLS, ids=[m for _, m in BAD_CALLS])
def test_a_per_call_value_out_of_range_is_refused_and_nothing_written(
    case: Case, message: str
) -> None:
    outputs = [np.full(shape, 77, dtype) for shape, dtype in case.outputs]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        case.run(outputs)
    assert str(caught.value) == message
    assert all((out == 77).all() for out in outputs)


# -- nodes that can't be ----------------------------------------------------------------------

BAD_NODES = [
    (Case("Nonsense", [], []), "Nonsense: there is no CPU kernel for this op"),
    (Case("SiLU", [], [((3,), F32)]), "SiLU: it has 0 inputs, expected 1"),
    (Case("Add", [normal(3), None], [((3,), F32)]), "Add: input 1 is omitted, expected a tensor"),
    (
        Case("SiLU", [np.arange(3)], [((3,), I64)]),
        "SiLU: x is int64, expected float32 or bfloat16",
    ),
    (
        Case("SiLU", [normal(3)], [((3,), BF16)]),
        "SiLU: out is bfloat16, expected float32 (as x)",
    ),
    (
        Case("SiLU", [normal(3)], [((2, 2), F32)]),
        "SiLU: out has shape (2, 2), expected (3,) (as x)",
    ),
    (
        Case("GELU", [normal(3)], [((3,), F32)], {"approximate": "some"}),
        "GELU: approximate is 'some', expected 'none' or 'tanh'",
    ),
    (
        Case("GELU", [normal(3)], [((3,), F32)], {"approximate": 1}),
        "GELU: attribute approximate is an int, expected a string",
    ),
    (
        Case("Add", [normal(2, 3), normal(4)], [((2, 3), F32)]),
        "Add: shapes (2, 3) and (4,) do not broadcast",
    ),
    (
        Case("Add", [normal(3), normal(3, dtype=BF16)], [((3,), F32)]),
        "Add: b is bfloat16, expected float32 (as a)",
    ),
    (
        Case("Mod", [np.arange(3), np.arange(3)], [((3,), I64)], {"fmod": 1}),
        "Mod: fmod is 1, expected 0",
    ),
    (
        Case("RMSNorm", [normal(2, 3), normal(2)], [((2, 3), F32)]),
        "RMSNorm: weight has shape (2,), expected (3,) (x's last dimension)",
    ),
    (
        Case("RMSNorm", [np.array(1, F32)], [((), F32)]),
        "RMSNorm: x has shape (), expected (..., D)",
    ),
    (
        Case("RMSNormalization", [normal(2, 5), normal(3)], [((2, 5), F32)], {"axis": 0}),
        "RMSNormalization: scale has shape (3,), expected one that broadcasts to (2, 5) (x from axis 0 on)",
    ),
    (
        Case("Softmax", [normal(2, 3)], [((2, 3), F32)], {"axis": 5}),
        "Softmax: axis is 5, expected -2..1 (2 dimensions)",
    ),
    (
        Case("RoPE", [normal(4, 5), normal(2, 5)], [((4, 5), F32)]),
        "RoPE: x has shape (4, 5), expected (R, D) with an even D",
    ),
    (
        Case("RoPE", [normal(4, 6), normal(3, 6)], [((4, 6), F32)]),
        "RoPE: angles has shape (3, 6), expected (A, 6) with A a divisor of 4 (x's rows)",
    ),
    (
        Case("RoPE", [normal(4, 6), normal(2, 6)], [((4, 6), F32)], {"interleaved": 2}),
        "RoPE: interleaved is 2, expected 0 or 1",
    ),
    (
        Case("CausalConv1d", [normal(8, 4), normal(3, 5), normal(2, 4)], CONV_OUTPUTS),
        "CausalConv1d: taps has shape (3, 5), expected (K, 4) with K >= 1 (x has shape (8, 4))",
    ),
    (
        Case("CausalConv1d", [normal(8, 4), normal(3, 4), normal(3, 4)], CONV_OUTPUTS),
        "CausalConv1d: state has shape (3, 4), expected (2, 4) (taps has 3 rows)",
    ),
    (
        Case("CausalConv1d", [*CONV, np.array(1)], CONV_OUTPUTS),
        "CausalConv1d: rows is int64, expected int32",
    ),
    (
        Case("CausalConv1d", [*CONV, np.zeros(2, np.int32)], CONV_OUTPUTS),
        "CausalConv1d: rows has shape (2,), expected () or (1,)",
    ),
    (
        Case("GEMV", [normal(4, 3), normal(4)], [((4,), F32)]),
        "GEMV: x has shape (4,), expected (3,) or (1, 3) (weight has shape (4, 3))",
    ),
    (
        Case("GEMM", [normal(4, 3), normal(4, 5)], [((4, 5), F32)]),
        "GEMM: b has shape (4, 5), expected (3, N) (a has shape (4, 3), b_col_maj is 0)",
    ),
    (
        Case("GEMM", [normal(4, 3), normal(5, 4)], [((4, 5), F32)], {"b_col_maj": 1}),
        "GEMM: b has shape (5, 4), expected (N, 3) (a has shape (4, 3), b_col_maj is 1)",
    ),
    (
        Case("GEMM", [normal(4, 3), normal(3, 5)], [((4, 5), F32)], {"precision": "low"}),
        "GEMM: precision is 'low', expected 'default', 'high' or 'highest'",
    ),
    (
        Case("ProjectionGEMM", [normal(4, 3), normal(3, 5)], [((4, 5), F32)], {"epilogue": "no"}),
        "ProjectionGEMM: epilogue is 'no', expected 'none', 'gelu', 'sigmoid' or 'silu'",
    ),
    (
        Case("Embedding", [normal(4, 3), normal(2)], [((2, 3), F32)]),
        "Embedding: ids is float32, expected int32 or int64",
    ),
    (
        Case("Attention", [normal(2, 3, 4), *QKV[1:]], [((2, 3, 4), F32)]),
        "Attention: query has 3 heads, expected a multiple of 2 (key's)",
    ),
    (
        Case("Attention", [QKV[0], QKV[1], normal(8, 2, 4)], [((2, 2, 4), F32)]),
        "Attention: value has shape (8, 2, 4), expected (9, 2, Dv) (key has shape (9, 2, 4))",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(0)], [((9, 2), F32)], {"length": 9}),
        "Narrow: length is 9, expected 0..8 (x has shape (8, 2), axis is 0)",
    ),
    (
        Case("Narrow", [normal(8, 2), scalar(0)], [((9, 2), F32)]),
        "Narrow: attribute length is missing, expected an int",
    ),
    (
        Case("SliceScatter", [normal(8, 2), normal(3, 3), scalar(0)], [((8, 2), F32)]),
        "SliceScatter: src has shape (3, 3), expected (3, 2) (as x but for axis 0)",
    ),
    (
        Case("Slice", [normal(8)], [((4,), F32)], {"starts": [5]}),
        "Slice: starts[0] is 5 and steps[0] 1, expected 4 entries (out's) within axis 0 of x, (8,)",
    ),
    (
        Case("Slice", [normal(8)], [((4,), F32)], {"starts": [5], "steps": [-2]}),
        "Slice: starts[0] is 5 and steps[0] -2, "
        "expected 4 entries (out's) within axis 0 of x, (8,)",
    ),
    (
        Case("Slice", [normal(8)], [((4,), F32)], {"starts": [0, 0], "axes": [0, -1]}),
        "Slice: axes is (0, -1), expected every axis once",
    ),
    (
        Case("Transpose", [normal(2, 3)], [((3, 2), F32)], {"perm": [1, 1]}),
        "Transpose: perm is (1, 1), expected a permutation of the axes of x, (2, 3)",
    ),
    (
        Case("Concat", [normal(2, 3), normal(2, 4)], [((4, 3), F32)], {"axis": 0}),
        "Concat: input 1 has shape (2, 4), expected (2, 3) (as input 0 but for axis 0)",
    ),
    (
        Case("MatMul", [normal(2, 3), normal(4, 5)], [((2, 5), F32)]),
        "MatMul: b has shape (4, 5), expected 3 where its products are summed (a has shape (2, 3))",
    ),
]


@pytest.mark.parametrize(("case", "message"), BAD_NODES, ids=[m for _, m in BAD_NODES])
def test_a_node_that_cannot_be_is_refused_when_its_kernel_is_made(case: Case, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        case.run()
    assert str(caught.value) == message


def test_run_kernel_refuses_what_has_no_kernel_or_cannot_be_written() -> None:
    with pytest.raises(ValueError, match=r"^an operand is float64, expected one of"):
        run("SiLU", [np.zeros(3)], (3,), F32)
    with pytest.raises(ValueError, match=r"^an output array is not contiguous and writeable"):
        run_kernel("SiLU", [normal(3)], [np.zeros((3, 2), F32)[:, 0]])
    with pytest.raises(ValueError, match=r"^threads is 0, expected 1\.\.256"):
        run("SiLU", [normal(3)], (3,), F32, threads=0)


def test_a_library_that_is_not_there_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_IRON_LIBRARY", "/nowhere/libonnx_iron.so")
    with pytest.raises(
        ImportError, match=r"'/nowhere/libonnx_iron\.so', and there is no such file"
    ):
        library_path()


# -- the other loops --------------------------------------------------------------------------

FORCED = "ONNX_IRON_CPU"


@pytest.mark.skipif(FORCED in os.environ, reason="this is the run that the test starts")
@pytest.mark.parametrize("path", ["portable", "avx2"])
def test_all_of_this_holds_on_the_other_paths_too(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, FORCED: path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.skipif(FORCED not in os.environ, reason="for the runs that the test above starts")
def test_the_environment_forces_a_path() -> None:
    # A CPU without AVX2 has the portable one alone.
    assert cpu_path() in (os.environ[FORCED], "portable")


@pytest.mark.skipif(cpu_path() != "avx512", reason="there is one width of vectors here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wider_vectors_change_no_bit(dtype: str) -> None:
    script = f"""
import hashlib, ml_dtypes, numpy as np
from onnx_iron.kernels import run_kernel
dtype = np.dtype(ml_dtypes.bfloat16 if {dtype!r} == "bfloat16" else np.float32)
random, digest = np.random.default_rng(0), hashlib.sha256()
for m, n, k in ((1, 40, 805), (7, 33, 805), (100, 25, 1600), (3, 8, 5)):
    a, b = (random.standard_normal(s).astype(np.float32).astype(dtype) for s in ((m, k), (n, k)))
    for op in ("GEMM", "ProjectionGEMM"):
        digest.update(run_kernel(op, [a, b], [((m, n), dtype)], {{"b_col_maj": 1}})[0].tobytes())
    for op in ("Softmax", "RMSNorm", "LayerNorm", "SiLU", "GELU", "Sigmoid", "Tanh", "Erf", "Exp"):
        digest.update(run_kernel(op, [a], [((m, k), dtype)])[0].tobytes())
print(digest.hexdigest())
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, FORCED: path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for path in ("avx2", "avx512")
    }
    assert len(digests) == 1
