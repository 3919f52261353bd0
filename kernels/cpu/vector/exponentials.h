// Exponential functions of float32 in float32, within 1.3 ulp: what a rounding loses is carried
// along where a later step would enlarge it, which takes a fused product. Without one they go by
// float64 (math.h).
#pragma once

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/wide.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

#if defined(__FMA__)

// exp(x) = (high + low) * 2**n, high 0.7 to 1.42 and low what its rounding left.
template <typename V>
struct Exponential {
  V high, low;
  V biased, n;  // as power_of_two has them
};

// Of x + rest, |x| below 150 and rest less than its ulp.
template <typename V>
ONNX_IRON_INLINE Exponential<V> exponential(V x, V rest) {
  const V round = all<V>(12582912.0f);  // 1.5 * 2**23
  const V one = all<V>(1.0f);
  const V biased = fma(x, all<V>(1.44269504f), round);
  const V n = sub(biased, round);
  // ln(2) in two parts, the first exact in 12 bits.
  const V exact = fma(n, all<V>(-0.693359375f), x);
  const V r = add(fma(n, all<V>(2.12194440e-4f), exact), rest);
  const V part = exp_part(r);
  const V high = add(one, part);
  return {high, add(sub(one, high), part), biased, n};
}

template <typename V>
ONNX_IRON_INLINE Exponential<V> exponential(V x) {
  return exponential(x, all<V>(-0.0f));  // which a sum leaves as it is, and the compiler leaves out
}

template <typename V>
ONNX_IRON_INLINE V exp(V x) {
  // Past these a result is 0 or infinity. The second operand is what is left of a NaN.
  x = smaller(all<V>(90.0f), larger(all<V>(-110.0f), x));
  const Exponential<V> e = exponential(x);
  return scaled(e.high, e.biased, e.n);
}

// (a + rest) / (1 + e) for 0 <= e <= 1, rounded about once.
template <typename V>
ONNX_IRON_INLINE V over_one_and(V e, V a, V rest) {
  const V inverse = div(all<V>(1.0f), add(all<V>(1.0f), e));
  const V near = mul(a, inverse);
  // a - near is exact, for near is between a / 2 and a.
  return fma(add(fnma(near, e, sub(a, near)), rest), inverse, near);
}

// Where it is 0, whatever it is multiplied by.
inline constexpr float kNothing = -126.0f;

// exp(-|x|) / (1 + exp(-|x|)), of which 1 is the rest.
template <typename V>
ONNX_IRON_INLINE V sigmoid(V x) {
  const Exponential<V> e = exponential(larger(all<V>(kNothing), below_zero(x)));
  const V quotient = over_one_and(scaled(e.high, e.biased, e.n), e.high, e.low);
  const V tail = scaled(quotient, e.biased, e.n);
  return where_less(x, all<V>(0.0f), tail, sub(all<V>(1.0f), tail));
}

// max(x, 0) - |x| * sigmoid(-|w|), w the exponent that `factor` = -|x| comes with.
template <typename V>
ONNX_IRON_INLINE V gated(V x, V factor, const Exponential<V>& e) {
  const V product = mul(factor, e.high);
  const V rest = fma(factor, e.low, fms(factor, e.high, product));
  const V quotient = over_one_and(scaled(e.high, e.biased, e.n), product, rest);
  // Minus infinity less itself is a NaN; of two zeros the second is the smaller one.
  const V above = sub(x, smaller(x, all<V>(0.0f)));
  return add(above, scaled(quotient, e.biased, e.n));
}

template <typename V>
ONNX_IRON_INLINE V silu(V x) {
  const V factor = larger(all<V>(kNothing), below_zero(x));
  return gated(x, factor, exponential(factor));
}

// x * sigmoid(2 u), u = sqrt(2 / pi) * (x + 0.044715 x**3). An error of the exponent would be
// enlarged by its size, so its low part is kept.
template <typename V>
ONNX_IRON_INLINE V gelu_tanh(V x) {
  const V linear = all<V>(1.5957691669464111f), linear_rest = all<V>(-4.534068e-8f);
  const V cubic = all<V>(0.071354813873767853f), cubic_rest = all<V>(2.3988325e-9f);
  const V factor = larger(all<V>(-12.0f), below_zero(x));
  const V square = mul(factor, factor), square_rest = fms(factor, factor, square);
  const V third = mul(cubic, square);
  const V third_rest = fma(cubic_rest, square, fma(cubic, square_rest, fms(cubic, square, third)));
  // linear + third, and what the sum's rounding left of either.
  const V total = add(linear, third), of_third = sub(total, linear);
  const V lost = add(sub(linear, sub(total, of_third)), sub(third, of_third));
  const V total_rest = add(add(third_rest, linear_rest), lost);
  const V exponent = mul(factor, total);
  const V rest = fma(factor, total_rest, fms(factor, total, exponent));
  return gated(x, factor, exponential(exponent, rest));
}

// (1 - e) / (1 + e), e = exp(-2 |x|).
template <typename V>
ONNX_IRON_INLINE V tanh(V x) {
  const V one = all<V>(1.0f);
  const V half = larger(all<V>(-20.0f), below_zero(x));
  const Exponential<V> parts = exponential(add(half, half));
  const V e = scaled(parts.high, parts.biased, parts.n);
  const V rest = scaled(parts.low, parts.biased, parts.n);
  const V above = sub(one, e);
  const V above_rest = sub(sub(sub(one, above), e), rest);
  const V inverse = div(one, add(one, e));
  const V near = mul(above, inverse);
  const V left = add(fnma(near, e, sub(above, near)), above_rest);
  return with_sign_of(fma(fnma(near, rest, left), inverse, near), x);
}

#else

ONNX_IRON_INLINE F8 exp(F8 x) { return to_float(exp(to_double(x))); }
ONNX_IRON_INLINE F8 silu(F8 x) { return to_float(silu(to_double(x))); }
ONNX_IRON_INLINE F8 tanh(F8 x) { return to_float(tanh(to_double(x))); }

ONNX_IRON_INLINE F8 sigmoid(F8 x) {
  const D8 one = splat_double(1.0);
  return to_float(div(one, add(one, exp(negative(to_double(x))))));
}

// x * (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x**3).
ONNX_IRON_INLINE F8 gelu_tanh(F8 x) {
  const D8 wide = to_double(x);
  const D8 cubic = fma(mul(wide, wide), splat_double(0.044715), splat_double(1.0));
  const D8 twice = mul(mul(wide, cubic), splat_double(-1.5957691216057308));
  return to_float(div(wide, add(splat_double(1.0), exp(twice))));
}

#endif

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
