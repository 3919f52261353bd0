// Sums and maxima over a vector's lanes: halves meet, lane by lane, until one lane is left.
#pragma once

#include "arithmetic.hpp"
#include "compare.hpp"

namespace aie {

template <unsigned N>
float reduce_add(const vector<float, N>& v) {
  std::array<float, N> lane = v.lane;
  for (unsigned half = N / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; ++i) lane[i] = host::add(lane[i], lane[i + half]);
  }
  return lane[0];
}

template <Element T, unsigned N>
T reduce_max(const vector<T, N>& v) {
  std::array<T, N> lane = v.lane;
  for (unsigned half = N / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; ++i) {
      if (host::less(lane[i], lane[i + half])) lane[i] = lane[i + half];
    }
  }
  return lane[0];
}

}  // namespace aie
