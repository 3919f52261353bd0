"""The host model of the cores: where they differ from IEEE 754, against numpy's own arithmetic."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from aie_arrays import every_bfloat16

from onnx_iron.dtypes import BFLOAT16, FLOAT32, Array
from onnx_iron.kernels.aie import build
from onnx_iron.kernels.aie.build import Generation

PROGRAM = """
#include <aie_api/aie.hpp>
#include <cstdio>
#include <vector>
using Floats = aie::vector<float, 16>;
using Halves = aie::vector<bfloat16, 16>;
using Sums = aie::accum<accfloat, 16>;
Halves half(const Floats& x) { return Sums(x).to_vector<bfloat16>(); }
Floats truth(const aie::mask<16>& m) {
  return aie::select(aie::zeros<float, 16>(), aie::broadcast<float, 16>(1.0f), m);
}
Floats each(float (*f)(float), const Floats& a) {
  Floats v = a;
  for (unsigned i = 0; i < 16; ++i) v.set(f(a.get(i)), i);
  return v;
}
Floats one(const char* name, const Floats& a, const Floats& b, const Floats& c) {
  const std::string_view f(name);
  if (f == "abs") return aie::abs(a);
  if (f == "less") return truth(aie::lt(a, b.get(0)));
  if (f == "not_less") return truth(aie::ge(a, b.get(0)));
  if (f == "max") return aie::max(a, b);
  if (f == "inv") return each(aie::inv, a);
  if (f == "invsqrt") return each(aie::invsqrt, a);
  if (f == "add") return aie::add(a, b);
  if (f == "multiply") return aie::mul(a, b).to_vector<float>();
  if (f == "mac") return aie::mac(Sums(c), half(a), half(b)).to_vector<float>();
  std::fprintf(stderr, "no %s", name);
  std::exit(2);
}
int main(int, char** argv) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  float in[3][16];
  while (std::fread(in, sizeof(in), 1, stdin)) {
    Floats v[3];
    for (int k = 0; k < 3; ++k) for (unsigned i = 0; i < 16; ++i) v[k].set(in[k][i], i);
    const Floats y = one(argv[1], v[0], v[1], v[2]);
    for (unsigned i = 0; i < 16; ++i) {
      const float lane = y.get(i);
      std::fwrite(&lane, sizeof(lane), 1, stdout);
    }
  }
}
"""
Model = Callable[..., Array]


@pytest.fixture(scope="module", params=list(Generation))
def generation(request: pytest.FixtureRequest) -> Generation:
    return Generation(request.param)


@pytest.fixture(scope="module")
def model(generation: Generation, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A function of the host header over float32 arrays of one shape: (name, a, b, c)."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.cc").write_text(PROGRAM)
    include = Path(build.__file__).parent / "host"
    command = ["g++", "-std=c++20", "-O1", "-ffp-contract=off", f"-I{include}"]
    command += [f"-D__AIE_ARCH__={generation.arch}", "model.cc", "-o", "model"]
    subprocess.run(command, cwd=folder, check=True)

    def run(name: str, *operands: Array) -> Array:
        (size,) = operands[0].shape
        packed = np.zeros((3, -(-size // 16) * 16), FLOAT32)
        for row, operand in zip(packed, operands, strict=False):
            row[:size] = operand
        sent = packed.reshape(3, -1, 16).transpose(1, 0, 2).tobytes()
        ran = subprocess.run([folder / "model", name], input=sent, capture_output=True, check=True)
        return np.frombuffer(ran.stdout, FLOAT32)[:size]

    return run


def floats(*values: float) -> Array:
    return np.array(values, FLOAT32)


def test_abs_of_float_is_that_of_the_bits_on_aie2_and_clears_the_sign_on_aie2p(
    model: Model, generation: Generation
) -> None:
    x = floats(1, -1, -0.0, 3.5, -3.5, np.inf, -np.inf)
    if generation is Generation.AIE2:
        wanted = np.abs(x.view(np.int32)).view(FLOAT32)
        assert model("abs", floats(-1))[0] == 4.0
    else:
        wanted = np.abs(x)
    assert (model("abs", x).view(np.int32) == wanted.view(np.int32)).all()


def test_equal_infinities_and_nan_are_neither_less_nor_not_less(model: Model) -> None:
    inf, nan = np.inf, np.nan
    below = floats(-inf, inf, nan, 1, -1)
    assert list(model("not_less", below, floats(-inf))) == [0, 1, 0, 1, 1]
    assert list(model("less", below, floats(inf))) == [1, 0, 0, 1, 1]
    assert list(model("not_less", below, floats(inf))) == [0, 0, 0, 0, 0]
    assert list(model("less", below, floats(nan))) == [0, 0, 0, 0, 0]


def test_the_larger_of_two_is_the_first_where_one_is_nan(model: Model) -> None:
    y = model("max", floats(np.nan, 1, -np.inf, 2), floats(1, np.nan, -np.inf, 3))
    assert np.isnan(y[0])
    assert list(y[1:]) == [1, -np.inf, 3]


def test_inverses_have_the_accuracy_of_aie_apis_steps_and_no_more(
    model: Model, generation: Generation, rng: np.random.Generator
) -> None:
    x = np.exp(rng.uniform(-50, 50, 4096)).astype(FLOAT32)
    off = np.abs(model("inv", x).astype(np.float64) * x - 1).max()
    root = np.abs(model("invsqrt", x).astype(np.float64) * np.sqrt(x.astype(np.float64)) - 1).max()
    if generation is Generation.AIE2:
        assert 2**-24 < off < 2**-21
        assert 2**-11 < root < 2**-10
    else:
        assert 2**-15 < max(off, root) < 2**-13


def test_inverses_of_infinity_and_of_large_numbers_are_not_to_be_used(
    model: Model,
) -> None:
    assert (model("inv", floats(np.inf)) != 0).all()
    assert not np.isfinite(model("inv", floats(3e38))).any()
    assert model("invsqrt", floats(np.inf))[0] != 0


def nearest(x: Array, exponent: Array) -> Array:
    """To a multiple of 2^exponent, ties to even."""
    scale = np.exp2(exponent.astype(np.float64))
    return np.round(x.astype(np.float64) / scale) * scale


def exponents(x: Array) -> Array:
    return np.where(x == 0, -999, np.frexp(x.astype(np.float64))[1] - 1)


def test_a_sum_keeps_24_bits_from_its_larger_operands_exponent(
    model: Model, rng: np.random.Generator
) -> None:
    a, b = (rng.standard_normal((2, 4096)) * np.exp2(rng.integers(-9, 9, (2, 4096)))).astype(
        FLOAT32
    )
    b[::3] = -a[::3] * (1 + np.exp2(rng.integers(-23, -3, b[::3].size))).astype(FLOAT32)
    lowest = np.maximum(exponents(a), exponents(b)) - 23
    wanted = (nearest(a, lowest) + nearest(b, lowest)).astype(FLOAT32)
    assert (model("add", a, b) == wanted).all()
    assert (wanted != a + b).any(), "IEEE's sums show nothing"


def test_a_multiplication_into_a_sum_rounds_once_with_three_bits_more_for_the_sum(
    model: Model, rng: np.random.Generator
) -> None:
    a, b = (rng.standard_normal((2, 4096))).astype(BFLOAT16).astype(FLOAT32)
    c = (rng.standard_normal(4096) * np.exp2(rng.integers(-12, 12, 4096))).astype(FLOAT32)
    product = a.astype(np.float64) * b
    largest = np.maximum(exponents(c), exponents(a) + exponents(b) + 1)
    wanted = (nearest(c, largest - 26) + nearest(product, largest - 23)).astype(FLOAT32)
    assert (model("mac", a, b, c) == wanted).all()


def test_float_products_are_two_ulp_off_at_the_most_and_nan_for_infinity(
    model: Model, rng: np.random.Generator
) -> None:
    a, b = rng.standard_normal((2, 4096)).astype(FLOAT32)
    exact = a.astype(np.float64) * b
    y = model("multiply", a, b)
    assert (np.abs(y - exact) <= 2 * np.spacing(np.abs(exact).astype(FLOAT32))).all()
    assert (y != exact.astype(FLOAT32)).any()
    assert np.isnan(model("multiply", floats(np.inf), floats(1))[0])


def test_bfloat16_products_are_exact(model: Model) -> None:
    x = every_bfloat16().astype(FLOAT32)
    x = x[np.isfinite(x) & (np.abs(x) > 2.0**-60) & (np.abs(x) < 2.0**60)]
    y = np.resize(x[::-7], x.shape)
    assert (model("mac", x, y, np.zeros_like(x)) == x.astype(np.float64) * y).all()
