// inv and invsqrt.
//
// CONTRACT: a relative error of 2^-14 at the most, with inv(0) infinite and inv(infinity) 0. The
// model errs by that much on purpose, so that a kernel that needs more has to refine what it gets.
#pragma once

#include <cmath>

#include "vector.hpp"

namespace aie {
namespace host {

// 14 bits of mantissa, the rest cut off.
inline float coarse(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(flush(x));
  return is_nan(bits) ? x : std::bit_cast<float>(bits & 0xfffffe00);
}

}  // namespace host

inline float inv(float x) { return host::coarse(1.0f / host::flush(x)); }
inline float invsqrt(float x) { return host::coarse(1.0f / std::sqrt(host::flush(x))); }

template <unsigned N>
vector<float, N> inv(const vector<float, N>& a) {
  vector<float, N> v;
  for (unsigned i = 0; i < N; ++i) v.lane[i] = inv(a.lane[i]);
  return v;
}

}  // namespace aie
