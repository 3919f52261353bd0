// What the kernels share: vector width, rounding, loops over a row, and float32 helpers.
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

inline constexpr float kInfinity = __builtin_inff();

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

// A float32 factor in three bfloat16 limbs: three multiplications a vector where float32 times
// float32 takes nine.
template <unsigned N>
class Factor {
 public:
  explicit Factor(float value) {
    const Floats<N> whole = aie::broadcast<float, N>(value);
    high_ = round<N>(whole);
    const Floats<N> rest = aie::sub(whole, widen<N>(high_));
    middle_ = round<N>(rest);
    low_ = round<N>(aie::sub(rest, widen<N>(middle_)));
  }

  Sums<N> operator*(const Halves<N>& x) const {
    return aie::mac(aie::mac(aie::mul(x, low_), x, middle_), x, high_);
  }

 private:
  Halves<N> high_, middle_, low_;
};

// 1 / x, refined once: aie::inv promises 14 bits.
template <unsigned N>
Floats<N> reciprocal(const Floats<N>& x) {
  const Floats<N> guess = aie::inv(x);
  const Floats<N> two = aie::broadcast<float, N>(2.0f);
  return multiply<N>(guess, aie::sub(two, multiply<N>(x, guess)));
}

// 1 / sqrt(x), refined once; 0 for infinity.
inline float reciprocal_root(float x) {
  if (!(x < kInfinity)) return aie::inv(x);
  const float guess = aie::invsqrt(x);
  return guess * (1.5f - 0.5f * x * guess * guess);
}

// An int32 that was streamed behind bfloat16 data.
inline int32_t word_at(const bfloat16* place, int32_t index) {
  int32_t word;
  __builtin_memcpy(&word, place + 2 * index, sizeof(word));
  return word;
}

}  // namespace onnx_iron::aie_kernels
