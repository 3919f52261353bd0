// Comparisons, max, min and select.
#pragma once

#include "arithmetic.hpp"

namespace aie {
namespace host {

// Two bfloat16 compare natively. UNKNOWN: the answer where one is NaN; here false.
inline bool less(bfloat16 a, bfloat16 b) { return number(a) < number(b); }
inline bool not_less(bfloat16 a, bfloat16 b) { return number(a) >= number(b); }

// Two float compare by their difference, rounded to bfloat16 by the mode, against 0: equal
// infinities, whose difference is NaN, are neither less nor not less.
inline bfloat16 difference(float a, float b) {
  return bfloat16::from_bits(round(add(a, -b), mode));
}
inline bool less(float a, float b) { return less(difference(a, b), bfloat16(0.0f)); }
inline bool not_less(float a, float b) { return not_less(difference(a, b), bfloat16(0.0f)); }

template <Whole T>
bool less(T a, T b) {
  return a < b;
}
template <Whole T>
bool not_less(T a, T b) {
  return a >= b;
}

}  // namespace host

template <Element T, unsigned N>
mask<N> lt(const vector<T, N>& a, T b) {
  mask<N> m;
  for (unsigned i = 0; i < N; ++i) m.lane[i] = host::less(a.lane[i], b);
  return m;
}
template <Element T, unsigned N>
mask<N> ge(const vector<T, N>& a, T b) {
  mask<N> m;
  for (unsigned i = 0; i < N; ++i) m.lane[i] = host::not_less(a.lane[i], b);
  return m;
}

// The first where the comparison is false: so the first where either is NaN.
template <Element T, unsigned N>
vector<T, N> max(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) {
    v.lane[i] = host::less(a.lane[i], b.lane[i]) ? b.lane[i] : a.lane[i];
  }
  return v;
}
template <Element T, unsigned N>
vector<T, N> max(const vector<T, N>& a, T b) {
  return max(a, broadcast<T, N>(b));
}
template <Element T, unsigned N>
vector<T, N> min(const vector<T, N>& a, T b) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) v.lane[i] = host::not_less(a.lane[i], b) ? b : a.lane[i];
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
