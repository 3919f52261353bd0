// What the kernels share: vector width, rounding, loops over a row, and float32 arithmetic.
//
// A kernel works on tiles in a core's memory. Every row of a tile starts at a multiple of the
// vector width, so a row's length is a whole number of vectors (kLanes) unless its file says
// otherwise.
#pragma once

#include <aie_api/aie.hpp>
#include <cstdint>

#ifdef ONNX_IRON_HOST
#include "host/registry.h"
#else
#define ONNX_IRON_KERNEL(name)
#endif

namespace onnx_iron::aie_kernels {

// bfloat16 lanes of a vector.
#if __AIE_ARCH__ >= 21
inline constexpr unsigned kLanes = 32;
#else
inline constexpr unsigned kLanes = 16;
#endif

template <unsigned N>
using Halves = aie::vector<bfloat16, N>;
template <unsigned N>
using Floats = aie::vector<float, N>;
template <unsigned N>
using Sums = aie::accum<accfloat, N>;

template <unsigned N>
using Words = aie::vector<int32, N>;

// Rounds to nearest even while it lives; a core floors otherwise.
class NearestEven {
 public:
  NearestEven() : before_(aie::swap_rounding(aie::rounding_mode::conv_even)) {}
  ~NearestEven() { aie::set_rounding(before_); }
  NearestEven(const NearestEven&) = delete;
  NearestEven& operator=(const NearestEven&) = delete;

 private:
  aie::rounding_mode before_;
};

template <unsigned N>
Floats<N> widen(const Halves<N>& x) {
  return Sums<N>(x).template to_vector<float>();
}

template <unsigned N>
Halves<N> round(const Floats<N>& x) {
  return Sums<N>(x).template to_vector<bfloat16>();
}

template <unsigned N>
Floats<N> multiply(const Floats<N>& a, const Floats<N>& b) {
  return aie::mul(a, b).template to_vector<float>();
}

template <unsigned N>
Floats<N> multiply(const Floats<N>& a, float b) {
  return multiply<N>(a, aie::broadcast<float, N>(b));
}

// Calls body(i) for the first lane of each vector of a row.
template <unsigned N = kLanes, typename Body>
inline void for_vectors(int32_t length, Body&& body) {
  for (int32_t i = 0; i < length; i += N) body(i);
}

// -- numbers as their bits ----------------------------------------------------------------------
// The cores compare float32 by a rounded difference, which is NaN for equal infinities, and aie2's
// abs of float32 is not one. As whole numbers the bits compare as they should: without the sign's,
// they are in the order of the magnitudes, infinity above all numbers and NaN above it.

constexpr int32_t bits_of(float x) { return __builtin_bit_cast(int32_t, x); }

inline constexpr int32_t kInfinityBits = bits_of(__builtin_inff());

template <unsigned N>
Words<N> bits_of(const Floats<N>& x) {
  return x.template cast_to<int32>();
}

template <unsigned N>
Words<N> size_bits(const Floats<N>& x) {
  return aie::bit_and(int32(0x7fffffff), bits_of<N>(x));
}

// Negative, be it zero or NaN.
template <unsigned N>
auto is_negative(const Floats<N>& x) {
  return aie::lt(bits_of<N>(x), int32(0));
}

// -- products of limbs --------------------------------------------------------------------------
// The cores multiply bfloat16 only: float32 by float32 is nine products and the making of six
// limbs. Two limbs, 16 bits, take three products.

template <unsigned N>
class Limbs {
 public:
  explicit Limbs(const Halves<N>& x) : high_(x), low_(aie::zeros<bfloat16, N>()) {}
  explicit Limbs(const Floats<N>& x)
      : high_(round<N>(x)), low_(round<N>(aie::sub(x, widen<N>(high_)))) {}

  // sum + a * b, but for the product of the low limbs: 2^-16 of a * b.
  friend Sums<N> mac(const Sums<N>& sum, const Limbs& a, const Limbs& b) {
    return aie::mac(aie::mac(aie::mac(sum, a.low_, b.high_), a.high_, b.low_), a.high_, b.high_);
  }
  friend Floats<N> operator*(const Limbs& a, const Limbs& b) {
    return mac(aie::zeros<accfloat, N>(), a, b).template to_vector<float>();
  }

 private:
  Halves<N> high_, low_;
};

// A float32 factor of bfloat16, in the three limbs that are all of it.
template <unsigned N>
class Factor {
 public:
  explicit Factor(float value) : Factor(aie::broadcast<float, N>(value)) {}
  explicit Factor(const Floats<N>& value) : high_(round<N>(value)) {
    const Floats<N> rest = aie::sub(value, widen<N>(high_));
    middle_ = round<N>(rest);
    low_ = round<N>(aie::sub(rest, widen<N>(middle_)));
  }

  Sums<N> operator*(const Halves<N>& x) const {
    return aie::mac(aie::mac(aie::mul(x, low_), x, middle_), x, high_);
  }
  const Halves<N>& high() const { return high_; }

 private:
  Halves<N> high_, middle_, low_;
};

// -- reciprocals --------------------------------------------------------------------------------
// aie2p computes aie::inv of a vector lane by lane, aie2's gives nonsense for infinity and above
// 2^126. These take whole vectors on both, for sizes of 2^-100 (bfloat16: 2^-126) to 2^100 and NaN.

// 1 / x, 2^-7 off: the bits' difference from a constant turns the exponent round and leaves the
// product with x between 0.85 and 0.92; one step of Newton's, with constants for that range.
template <unsigned N>
Halves<N> near_reciprocal(const Halves<N>& x) {
  const auto turned = aie::sub(aie::broadcast<int16, N>(0x7edb), x.template cast_to<int16>());
  const Halves<N> guess = turned.template cast_to<bfloat16>();
  const Halves<N> product = aie::mul(x, guess).template to_vector<bfloat16>();
  const Sums<N> two(aie::broadcast<float, N>(2.215234375f));
  const Halves<N> slope = aie::broadcast<bfloat16, N>(bfloat16(1.2265625f));
  const Halves<N> step = aie::msc(two, product, slope).template to_vector<bfloat16>();
  return aie::mul(guess, step).template to_vector<bfloat16>();
}

// y * (1 + e + e^2) for y near 1 / x and e = 1 - x * y, 2^-7 at the most: 2^-19 off.
template <unsigned N>
Floats<N> nearer_reciprocal(const Halves<N>& y, const Sums<N>& error) {
  const Halves<N> e = error.template to_vector<bfloat16>();
  const Limbs<N> step(aie::mac(error, e, e).template to_vector<float>());
  return mac(Sums<N>(y), Limbs<N>(y), step).template to_vector<float>();
}

template <unsigned N>
Floats<N> reciprocal(const Halves<N>& x) {
  const Halves<N> y = near_reciprocal<N>(x);
  return nearer_reciprocal<N>(y, aie::msc(Sums<N>(aie::broadcast<float, N>(1.0f)), y, x));
}

template <unsigned N>
Floats<N> reciprocal(const Floats<N>& x) {
  const Factor<N> limbs(x);
  const Halves<N> y = near_reciprocal<N>(limbs.high());
  const Sums<N> one(aie::broadcast<float, N>(1.0f));
  return nearer_reciprocal<N>(y, aie::sub(one, limbs * y));
}

// 1 / sqrt(x) of one number that is not negative, from aie2's guess, 2^-10 off, refined once.
// Infinite for 0, 0 for infinity, NaN for NaN, whatever a core's guess for those is; the guess for
// what is far from 1 would lose its square.
inline float reciprocal_root(float x) {
  const int32_t bits = bits_of(x);
  if (bits < bits_of(0x1p-126f)) return __builtin_inff();
  if (bits == kInfinityBits) return 0.0f;
  if (bits > kInfinityBits) return x;
  float scale = 1.0f;
  if (bits >= bits_of(0x1p80f)) {
    x *= 0x1p-64f;
    scale = 0x1p-32f;
  } else if (bits < bits_of(0x1p-80f)) {
    x *= 0x1p64f;
    scale = 0x1p32f;
  }
  const float guess = aie::invsqrt(x);
  return scale * guess * (1.5f - 0.5f * x * guess * guess);
}

// An int32 that was streamed behind bfloat16 data.
inline int32_t word_at(const bfloat16* place, int32_t index) {
  int32_t word;
  __builtin_memcpy(&word, place + 2 * index, sizeof(word));
  return word;
}

}  // namespace onnx_iron::aie_kernels
