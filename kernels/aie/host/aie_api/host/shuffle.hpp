// Lanes moved about.
#pragma once

#include <stdexcept>
#include <utility>

#include "vector.hpp"

namespace aie {

template <Element T, unsigned N>
vector<T, N / 2> filter_even(const vector<T, N>& a) {
  vector<T, N / 2> v;
  for (unsigned i = 0; i < N / 2; ++i) v.lane[i] = a.lane[2 * i];
  return v;
}
template <Element T, unsigned N>
vector<T, N / 2> filter_odd(const vector<T, N>& a) {
  vector<T, N / 2> v;
  for (unsigned i = 0; i < N / 2; ++i) v.lane[i] = a.lane[2 * i + 1];
  return v;
}

// (a0, b0, a1, b1, ...) in two vectors. aie_api takes larger chunks too; our kernels use 1.
template <Element T, unsigned N>
std::pair<vector<T, N>, vector<T, N>> interleave_zip(const vector<T, N>& a, const vector<T, N>& b,
                                                     unsigned chunk) {
  if (chunk != 1) throw std::logic_error("interleave_zip: a chunk other than 1");
  std::array<T, 2 * N> both;
  for (unsigned i = 0; i < N; ++i) {
    both[2 * i] = a.lane[i];
    both[2 * i + 1] = b.lane[i];
  }
  std::pair<vector<T, N>, vector<T, N>> zipped;
  for (unsigned i = 0; i < N; ++i) {
    zipped.first.lane[i] = both[i];
    zipped.second.lane[i] = both[N + i];
  }
  return zipped;
}

// The vector as a matrix by rows, transposed.
template <Element T, unsigned N>
vector<T, N> transpose(const vector<T, N>& a, unsigned rows, unsigned columns) {
  if (rows * columns != N) throw std::logic_error("transpose: not the vector's size");
  vector<T, N> v;
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned c = 0; c < columns; ++c) v.lane[c * rows + r] = a.lane[r * columns + c];
  }
  return v;
}

}  // namespace aie
