"""The CPU kernels that work element by element, against numpy, scipy and torch."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from cpu_kernels import (
    ARITHMETIC,
    BF16,
    BOOL,
    EPS,
    F32,
    FUNCTIONS,
    I32,
    I64,
    REAL,
    assert_same_bits,
    narrow,
    normal,
    run,
    steps_apart,
    wide,
)

from onnx_iron.kernels import run_kernel

SOURCES = Path(__file__).parent.parent / "kernels" / "cpu" / "functions"


def test_every_function_that_is_written_has_a_formula_here() -> None:
    structs = re.findall(
        r"struct \w+ : (Unary|Binary) \{(.*?)\n\};",
        "\n".join(file.read_text() for file in sorted(SOURCES.glob("*.cc"))),
        re.DOTALL,
    )
    written = set()
    for _, body in structs:
        name = re.search(r' name = "(\w+)"', body)
        choice = re.search(r' choice = "(\w+)"', body)
        assert name is not None
        written.add((name[1], choice[1] if choice else None))
    formulas = {
        (op, next(iter(attributes.values()), None))
        for op, attributes, _ in FUNCTIONS.values()
        if attributes or op != "GELU"  # whose default form is one of the others
    }
    assert written == formulas | {(op, None) for op in (*ARITHMETIC, "Mod")}


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
