// Functions of eight float32 lanes. The accurate ones compute in float64 and round once, which
// keeps them within an ulp in every range without a case for each; coefficients are Chebyshev
// interpolations, their relative errors (below 2e-9) stated beside them.
#pragma once

#include "kernels/cpu/vector/doubles.h"
#include "kernels/cpu/vector/wide.h"

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

// max(x, 0) + log1p(exp(-|x|)), the logarithm as 2 atanh(w): 2e-10 of it at w = 1/3, its largest.
ONNX_IRON_INLINE D8 softplus(D8 x) {
  constexpr double kSeries[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const D8 e = exp(negative(absolute(x)));
  const D8 w = div(e, add(splat_double(2.0), e));
  const D8 logarithm = mul(w, polynomial(kSeries, mul(w, w)));
  // The second operand is what is left of a NaN.
  return add(larger(splat_double(0.0), x), logarithm);
}

// exp(r) - 1 for |r| <= ln(2) / 2, as three short chains and not a long one.
template <typename V>
ONNX_IRON_INLINE V exp_part(V r) {
  const V square = mul(r, r);
  const V low = fma(r, all<V>(0.1666657667f), all<V>(0.5f));
  const V middle = fma(r, all<V>(0.008363232884f), all<V>(0.04166655421f));
  const V high = fma(square, all<V>(0.001392625083f), middle);
  return fma(fma(square, high, low), square, r);
}

// float32 all the way, for softmax: 2 ulp for x <= 0; 0 where the result would be subnormal.
template <typename V>
ONNX_IRON_INLINE V fast_exp(V x) {
  const V round = all<V>(12582912.0f);  // 1.5 * 2**23
  const V biased = fma(x, all<V>(1.44269504f), round);
  const V n = sub(biased, round);
  // ln(2) in two parts, the first exact in 12 bits.
  V r = fma(n, all<V>(-0.693359375f), x);
  r = fma(n, all<V>(2.12194440e-4f), r);
  const V part = add(all<V>(1.0f), exp_part(r));
  return unless_less(x, all<V>(-87.0f), part, biased, n);
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
