// inv and invsqrt.
#pragma once

#include <cmath>

#include "arithmetic.hpp"
#include "vector.hpp"

namespace aie {
namespace host {

#if __AIE_ARCH__ == 20

// aie_api's own steps: a guess by the bits, then Newton's, 2^-22.6 off for what has a finite
// inverse. Infinity, and what is above 2^126, gives nonsense.
inline float inverse(float x) {
  const float guess = std::bit_cast<float>(0x7eb53567u - std::bit_cast<uint32_t>(x));
  float y = add(-multiply(x, guess), 1.436142f);
  y = -multiply(multiply(y, guess), 1.9395974f);
  return -multiply(y, add(multiply(y, x), 2.0f));
}

// Likewise, one step: 2^-10.6 off. Zero has a finite one, infinity NaN.
inline float inverse_root(float x) {
  constexpr float kFactor = 0.703952253f, kTerm = kFactor * 2.38924456f;
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t half = (bits >> 1) + (bits & (bits >> 1) & 1);  // to even, as the mode has it
  const float guess = std::bit_cast<float>(0x5f1ffff9 - half);
  const float square = multiply(guess, guess);
  return multiply(guess, add(kTerm, -multiply(multiply(x, kFactor), square)));
}

#else

// UNKNOWN: a scalar instruction, of which no accuracy is published, nor what it makes of 0 and
// infinity. The model cuts it to 14 bits on purpose, so that a kernel that needs more has to refine
// what it gets, and gives NaN for what is not an ordinary number.
inline float cut(float x, float y) {
  const float size = std::fabs(x);
  if (!(size >= 0x1p-126f && size < 0x1p126f)) return __builtin_nanf("");
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) & 0xfffffe00);
}

inline float inverse(float x) { return cut(x, 1.0f / x); }
inline float inverse_root(float x) { return cut(x, 1.0f / std::sqrt(x)); }

#endif

}  // namespace host

inline float inv(float x) { return host::inverse(x); }
inline float invsqrt(float x) { return host::inverse_root(x); }

// aie2p takes the lanes one by one: our kernels have a reciprocal of their own.
template <unsigned N>
vector<float, N> inv(const vector<float, N>& a) {
  vector<float, N> v;
  for (unsigned i = 0; i < N; ++i) v.lane[i] = inv(a.lane[i]);
  return v;
}

}  // namespace aie
