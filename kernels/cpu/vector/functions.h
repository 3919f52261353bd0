// Functions of eight float32 lanes. The accurate ones compute in float64 and round once, which
// keeps them within an ulp in every range without a case for each; coefficients are Chebyshev
// interpolations, their relative errors (below 2e-9) stated beside them.
#pragma once

#include "kernels/cpu/loops.h"
#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

// c[0] + c[1] x + ..., as two chains in x**2 that run side by side.
template <int N>
ONNX_IRON_INLINE D8 polynomial(const double (&c)[N], D8 x) {
  const D8 square = mul(x, x);
  D8 first = splat_double(c[N - 1]), second = splat_double(c[N - 2]);
#pragma GCC unroll 16
  for (int i = N - 3; i > 0; i -= 2) {
    first = fma(first, square, splat_double(c[i]));
    second = fma(second, square, splat_double(c[i - 1]));
  }
  if constexpr (N % 2 == 0) return fma(first, x, second);
  return fma(second, x, fma(first, square, splat_double(c[0])));
}

// 0 below -709, infinity above 709.5; NaN stays.
ONNX_IRON_INLINE D8 exp(D8 x) {
  // 6e-11 over |r| <= ln(2) / 2.
  constexpr double kPolynomial[] = {0.999999999959236893,   0.999999999995472967,
                                    0.500000010837772808,   0.166666667870287525,
                                    0.0416662165210467985,  0.00833328333903442651,
                                    0.00139486979847100726, 0.000199077021757350544};
  // The second operand is what is left of a NaN.
  x = smaller(splat_double(710.0), larger(splat_double(-709.0), x));
  const D8 round = splat_double(6755399441055744.0);  // 1.5 * 2**52
  const D8 biased = fma(x, splat_double(1.4426950408889634), round);
  const D8 n = sub(biased, round);
  const D8 r = fma(n, splat_double(-0.6931471805599453), x);
  return mul(polynomial(kPolynomial, r), power_of_two(biased));
}

// exp(y * y) * erfc(y) for y >= 0; 1e-9 up to 11, where what it is multiplied by vanishes.
ONNX_IRON_INLINE D8 scaled_erfc(D8 y) {
  constexpr double kPolynomial[] = {
      1.2530080591428208,      -0.1356211087430914,     -0.047562404406535412,
      0.12964524339519987,     -0.1192713770893743,     0.068307999581448548,
      -0.023787735988358232,   0.0025208011455109111,   0.0019430951614387644,
      -0.00073031811880800596, -0.00016513885499580201, 4.1881651589500807e-5};
  y = smaller(splat_double(11.0), y);
  const D8 three = splat_double(3.0);
  const D8 below = add(y, three);
  const D8 twice = add(add(y, y), splat_double(1.0));
  // (y - 3) / (y + 3), and the division by 1 + 2 y, with one division.
  const D8 inverse = div(splat_double(1.0), mul(below, twice));
  const D8 w = mul(mul(sub(y, three), twice), inverse);
  return mul(polynomial(kPolynomial, w), mul(below, inverse));
}

ONNX_IRON_INLINE D8 negative(D8 x) { return sub(splat_double(0.0), x); }

ONNX_IRON_INLINE D8 sigmoid(D8 x) {
  const D8 one = splat_double(1.0);
  return div(one, add(one, exp(negative(x))));
}

ONNX_IRON_INLINE D8 silu(D8 x) { return div(x, add(splat_double(1.0), exp(negative(x)))); }

ONNX_IRON_INLINE D8 tanh(D8 x) {
  const D8 one = splat_double(1.0);
  // The quotient cancels near 0: there a series, 4e-12 at its end.
  constexpr double kSeries[] = {1.0, -1.0 / 3, 2.0 / 15};
  // Past 20 the result is 1, and infinity / infinity must not come up.
  const D8 near = smaller(splat_double(20.0), larger(splat_double(-20.0), x));
  const D8 e = exp(add(near, near));
  const D8 series = mul(near, polynomial(kSeries, mul(near, near)));
  return where_less(absolute(x), splat_double(0.02), series, div(sub(e, one), add(e, one)));
}

ONNX_IRON_INLINE D8 erf(D8 x) {
  // erf(x) / x in x**2 for |x| <= 1; 1.3e-9.
  constexpr double kSeries[] = {
      1.1283791658483509,   -0.37612626666720331,    0.11283594715160218,  -0.026854212010626412,
      0.005189087423433974, -0.00080168642871658695, 7.8758750626854883e-5};
  const D8 one = splat_double(1.0), zero = splat_double(0.0);
  const D8 y = smaller(splat_double(11.0), absolute(x)), square = mul(y, y);
  const D8 tail = sub(one, mul(exp(negative(square)), scaled_erfc(y)));
  const D8 magnitude = where_less(y, one, mul(y, polynomial(kSeries, square)), tail);
  // +0 and -0 both take the last case, which keeps their sign.
  const D8 signed_one = where_less(x, zero, splat_double(-1.0), one);
  return where_less(zero, absolute(x), mul(signed_one, magnitude), x);
}

// x * Phi(x), without the cancellation of 1 + erf in the lower tail.
ONNX_IRON_INLINE D8 gelu(D8 x) {
  const D8 half = splat_double(0.5);
  const D8 y = mul(absolute(x), splat_double(0.70710678118654752));
  const D8 tail = mul(mul(half, exp(negative(mul(y, y)))), scaled_erfc(y));
  return mul(x, where_less(x, splat_double(0.0), tail, sub(splat_double(1.0), tail)));
}

// x * (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x**3).
ONNX_IRON_INLINE D8 gelu_tanh(D8 x) {
  const D8 cubic = fma(mul(x, x), splat_double(0.044715), splat_double(1.0));
  const D8 twice = mul(mul(x, cubic), splat_double(-1.5957691216057308));
  return div(x, add(splat_double(1.0), exp(twice)));
}

// float32 all the way, for softmax: 2 ulp for x <= 0; 0 where the result would be subnormal.
ONNX_IRON_INLINE F8 fast_exp(F8 x) {
  const F8 round = splat(12582912.0f);  // 1.5 * 2**23
  const F8 lowest = splat(-87.0f);
  const F8 clamped = larger(lowest, x);
  const F8 biased = fma(clamped, splat(1.44269504f), round);
  const F8 n = sub(biased, round);
  // ln(2) in two parts, the first exact in 12 bits.
  F8 r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  F8 q = splat(0.001392625083f);
  q = fma(q, r, splat(0.008363232884f));
  q = fma(q, r, splat(0.04166655421f));
  q = fma(q, r, splat(0.1666657667f));
  q = fma(q, r, splat(0.5f));
  const F8 result = mul(add(splat(1.0f), fma(q, mul(r, r), r)), power_of_two(biased));
  return where_less(x, lowest, zero(), result);
}

template <UnaryOp op>
ONNX_IRON_INLINE F8 apply(F8 x) {
  if constexpr (op == UnaryOp::kIdentity) return x;
  if constexpr (op == UnaryOp::kNeg) return flip_sign(x);
  if constexpr (op == UnaryOp::kAbs) return absolute(x);
  if constexpr (op == UnaryOp::kRelu) return where_less(x, zero(), zero(), x);
  if constexpr (op == UnaryOp::kSqrt) return sqrt(x);
  if constexpr (op == UnaryOp::kReciprocal) return div(splat(1.0f), x);
  if constexpr (op == UnaryOp::kExp) return to_float(exp(to_double(x)));
  if constexpr (op == UnaryOp::kErf) return to_float(erf(to_double(x)));
  if constexpr (op == UnaryOp::kSigmoid) return to_float(sigmoid(to_double(x)));
  if constexpr (op == UnaryOp::kTanh) return to_float(tanh(to_double(x)));
  if constexpr (op == UnaryOp::kSiLU) return to_float(silu(to_double(x)));
  if constexpr (op == UnaryOp::kGELU) return to_float(gelu(to_double(x)));
  if constexpr (op == UnaryOp::kGELUTanh) return to_float(gelu_tanh(to_double(x)));
}

// What follows a matrix product, on its float32 sums.
inline void apply_epilogue(UnaryOp op, float* x, int64_t n) {
  if (op == UnaryOp::kIdentity) return;
  for_eights(n, [&](int64_t i, auto load, auto store) {
    const F8 sums = load(x + i);
    switch (op) {
      case UnaryOp::kGELU:
        return store(x + i, apply<UnaryOp::kGELU>(sums));
      case UnaryOp::kSiLU:
        return store(x + i, apply<UnaryOp::kSiLU>(sums));
      default:
        return store(x + i, apply<UnaryOp::kSigmoid>(sums));
    }
  });
}

// Float32 sums, through the epilogue, rounded to n elements of T. x is overwritten.
template <typename T>
inline void finish(UnaryOp epilogue, float* x, T* out, int64_t n) {
  apply_epilogue(epilogue, x, n);
  for_eights(n, [&](int64_t i, auto load, auto store) { store(out + i, load(x + i)); });
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
