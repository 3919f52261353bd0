// Comparisons, max, min and select. CONTRACT: with a NaN operand the cores may answer either way.
#pragma once

#include "arithmetic.hpp"

namespace aie {

template <host::Float T, unsigned N>
mask<N> lt(const vector<T, N>& a, T b) {
  mask<N> m;
  for (unsigned i = 0; i < N; ++i) m.lane[i] = host::number(a.lane[i]) < host::number(b);
  return m;
}
template <host::Float T, unsigned N>
mask<N> ge(const vector<T, N>& a, T b) {
  mask<N> m;
  for (unsigned i = 0; i < N; ++i) m.lane[i] = host::number(a.lane[i]) >= host::number(b);
  return m;
}

template <host::Float T, unsigned N>
vector<T, N> max(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) {
    v.lane[i] = host::number(a.lane[i]) < host::number(b.lane[i]) ? b.lane[i] : a.lane[i];
  }
  return v;
}
template <host::Float T, unsigned N>
vector<T, N> max(const vector<T, N>& a, T b) {
  return max(a, broadcast<T, N>(b));
}
template <host::Float T, unsigned N>
vector<T, N> min(const vector<T, N>& a, T b) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) {
    v.lane[i] = host::number(b) < host::number(a.lane[i]) ? b : a.lane[i];
  }
  return v;
}

// The second operand's lane where the mask is set.
template <Element T, unsigned N>
vector<T, N> select(const vector<T, N>& a, const vector<T, N>& b, const mask<N>& m) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) v.lane[i] = m.lane[i] ? b.lane[i] : a.lane[i];
  return v;
}

}  // namespace aie
