// Sums and maxima over a vector's lanes.
#pragma once

#include "arithmetic.hpp"

namespace aie {

// CONTRACT: the order. Here halves are added until one lane is left.
template <unsigned N>
float reduce_add(const vector<float, N>& v) {
  std::array<float, N> lane = v.lane;
  for (unsigned half = N / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; ++i) lane[i] = host::add(lane[i], lane[i + half]);
  }
  return lane[0];
}

// CONTRACT: which lane wins over a NaN.
template <host::Float T, unsigned N>
T reduce_max(const vector<T, N>& v) {
  T most = v.lane[0];
  for (const T& lane : v.lane) {
    if (host::number(most) < host::number(lane)) most = lane;
  }
  return most;
}

}  // namespace aie
