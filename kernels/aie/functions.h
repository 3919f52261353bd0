// exp, sigmoid, SiLU and GELU of float32 vectors, by polynomials.
//
// Relative error below 2^-14, 2^-10 below 2^-100, where limbs are flushed; results below 2^-118 may
// be zero. A core's own tanh and exp2 are not used: they miss by up to 0.04. exp(x) is 2^n times a
// polynomial of the fraction, with n added to the exponent's bits; whichever way the core rounds x
// to n, the polynomial covers the fraction.
#pragma once

#include "common.h"

namespace onnx_iron::aie_kernels {

template <unsigned N, int Terms>
Floats<N> polynomial(const Floats<N>& x, const float (&coefficients)[Terms]) {
  const Limbs<N> by(x);
  Floats<N> value = aie::broadcast<float, N>(coefficients[Terms - 1]);
  for (int i = Terms - 2; i >= 0; --i) {
    const Sums<N> term(aie::broadcast<float, N>(coefficients[i]));
    value = mac(term, Limbs<N>(value), by).template to_vector<float>();
  }
  return value;
}

// exp(-|x|); 0 where the result would be below 2^-125. NaN stays NaN.
template <unsigned N>
Floats<N> decay(const Floats<N>& x) {
  constexpr float kLog2E = 1.4426950408889634f;
  constexpr float kLargest = 86.64f;  // 125 * ln 2
  // 2^f for -1 <= f <= 1, relative error 2^-22.
  constexpr float kExp2[] = {1.0000001192092896f,   0.6931486129760742f,  0.24022413790225983f,
                             0.055491600185632706f, 0.00962381437420845f, 0.001359479152597487f,
                             0.0001517384371254593f};
  // Added to a number below 2^22 it leaves the nearest integer in the low bits.
  constexpr float kShift = 12582912.0f;

  const Words<N> size = size_bits<N>(x);
  const Floats<N> within = aie::min(size, bits_of(kLargest)).template cast_to<float>();
  const Floats<N> power = multiply<N>(within, -kLog2E);
  const Floats<N> shifted = aie::add(power, aie::broadcast<float, N>(kShift));
  const Floats<N> whole = aie::sub(shifted, aie::broadcast<float, N>(kShift));
  const Floats<N> scale = polynomial<N>(aie::sub(power, whole), kExp2);
  const auto n = aie::sub(bits_of<N>(shifted), aie::broadcast<int32, N>(bits_of(kShift)));
  const Floats<N> value =
      aie::add(bits_of<N>(scale), aie::upshift(n, 23)).template cast_to<float>();
  const Floats<N> small =
      aie::select(value, aie::zeros<float, N>(), aie::ge(size, bits_of(kLargest) + 1));
  return aie::select(small, x, aie::ge(size, kInfinityBits + 1));
}

// x times a finite factor above 0. An infinite x has no limbs, and stays.
template <unsigned N>
Floats<N> scaled(const Floats<N>& x, float by) {
  return aie::select(multiply<N>(x, by), x, aie::ge(size_bits<N>(x), kInfinityBits));
}

// 1 / (1 + exp(-x)), by the exponential of -|x|, which cannot overflow.
template <unsigned N>
Floats<N> sigmoid(const Floats<N>& x) {
  const Floats<N> exponential = decay<N>(x);
  const Floats<N> one = aie::broadcast<float, N>(1.0f);
  const Floats<N> positive = reciprocal<N>(aie::add(one, exponential));
  const Floats<N> negative = Limbs<N>(exponential) * Limbs<N>(positive);
  return aie::select(positive, negative, is_negative<N>(x));
}

// x times a factor that is 1 for every large x. Those x are passed on as they are, for infinity has
// no limbs to multiply.
template <unsigned N>
Floats<N> gated(const Floats<N>& x, const Floats<N>& gate) {
  const Floats<N> product = Limbs<N>(x) * Limbs<N>(gate);
  return aie::select(product, x, aie::ge(bits_of<N>(x), bits_of(32.0f)));
}

template <unsigned N>
Floats<N> silu(const Floats<N>& x) {
  return gated<N>(x, sigmoid<N>(x));
}

// x * Phi(x). Phi(-u) is exp(-u^2 / 2) / 2 times the scaled complementary error function of
// u / sqrt(2), which is a polynomial in 1 / (1 + 0.35 u): so the tail keeps its relative accuracy.
template <unsigned N>
Floats<N> gelu(const Floats<N>& x) {
  constexpr float kBend = 0.35f;
  // Over t = 1 / (1 + kBend * u), from t^1 on, relative error 2^-19 for 0 <= u <= 13.3.
  constexpr float kTail[] = {0.13977518677711487f,  0.1369667947292328f, 0.14222289621829987f,
                             0.012474587187170982f, 0.2047552466392517f, -0.17910805344581604f,
                             0.04291263967752457f};
  const Floats<N> u = aie::min(size_bits<N>(x), bits_of(14.0f)).template cast_to<float>();
  const Floats<N> one = aie::broadcast<float, N>(1.0f);
  const Floats<N> t = reciprocal<N>(aie::add(one, multiply<N>(u, kBend)));
  const Floats<N> tail = decay<N>(multiply<N>(multiply<N>(u, u), 0.5f));
  const Limbs<N> sum(Limbs<N>(t) * Limbs<N>(polynomial<N>(t, kTail)));
  const Floats<N> below = Limbs<N>(tail) * sum;
  return gated<N>(x, aie::select(aie::sub(one, below), below, is_negative<N>(x)));
}

// x * (1 + tanh(v)) / 2 is x * sigmoid(2 v).
template <unsigned N>
Floats<N> gelu_tanh(const Floats<N>& x) {
  constexpr float kLinear = 1.5957691216057308f;  // 2 * sqrt(2 / pi)
  constexpr float kCubic = kLinear * 0.044715f;
  const Floats<N> size = aie::min(size_bits<N>(x), bits_of(16.0f)).template cast_to<float>();
  const Floats<N> u = aie::select(size, aie::neg(size), is_negative<N>(x));
  const Floats<N> slope =
      aie::add(multiply<N>(multiply<N>(u, u), kCubic), aie::broadcast<float, N>(kLinear));
  return gated<N>(x, sigmoid<N>(multiply<N>(u, slope)));
}

}  // namespace onnx_iron::aie_kernels
