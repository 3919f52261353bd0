// add, sub, mul, mac, msc, neg and abs, lane by lane.
#pragma once

#include "vector.hpp"

namespace aie {
namespace host {

template <unsigned N, typename F>
accum<accfloat, N> per_lane(F&& f) {
  accum<accfloat, N> made;
  for (unsigned i = 0; i < N; ++i) made.lane[i] = f(i);
  return made;
}

// A lane of a vector as float32.
inline float number(float x) { return flush(x); }
inline float number(bfloat16 x) { return widen(x.bits()); }

inline float product(bfloat16 a, bfloat16 b) { return multiply_halves(number(a), number(b)); }
inline float product(float a, float b) { return multiply(a, b); }

template <typename T>
concept Float = std::same_as<T, float> || std::same_as<T, bfloat16>;

}  // namespace host

template <unsigned N>
accum<accfloat, N> add(const accum<accfloat, N>& a, const accum<accfloat, N>& b) {
  return host::per_lane<N>([&](unsigned i) { return host::add(a.lane[i], b.lane[i]); });
}
template <host::Float T, unsigned N>
accum<accfloat, N> add(const accum<accfloat, N>& a, const vector<T, N>& b) {
  return add(a, accum<accfloat, N>(b));
}
// bfloat16 is added in float32 and rounded by the mode.
template <host::Float T, unsigned N>
vector<T, N> add(const vector<T, N>& a, const vector<T, N>& b) {
  return add(accum<accfloat, N>(a), accum<accfloat, N>(b)).template to_vector<T>();
}
template <unsigned N>
vector<int32, N> add(const vector<int32, N>& a, const vector<int32, N>& b) {
  vector<int32, N> sum;
  for (unsigned i = 0; i < N; ++i) {
    const uint32 wrapped = static_cast<uint32>(a.lane[i]) + static_cast<uint32>(b.lane[i]);
    sum.lane[i] = static_cast<int32>(wrapped);
  }
  return sum;
}

template <unsigned N>
accum<accfloat, N> sub(const accum<accfloat, N>& a, const accum<accfloat, N>& b) {
  return host::per_lane<N>([&](unsigned i) { return host::add(a.lane[i], -b.lane[i]); });
}
template <host::Float T, unsigned N>
vector<T, N> sub(const vector<T, N>& a, const vector<T, N>& b) {
  return sub(accum<accfloat, N>(a), accum<accfloat, N>(b)).template to_vector<T>();
}

template <host::Float T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, const vector<T, N>& b) {
  return host::per_lane<N>([&](unsigned i) { return host::product(a.lane[i], b.lane[i]); });
}
template <host::Float T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, T b) {
  return mul(a, broadcast<T, N>(b));
}

template <host::Float T, unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<T, N>& a, const vector<T, N>& b) {
  return add(c, mul(a, b));
}
template <host::Float T, unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<T, N>& a, T b) {
  return mac(c, a, broadcast<T, N>(b));
}
template <host::Float T, unsigned N>
accum<accfloat, N> msc(const accum<accfloat, N>& c, const vector<T, N>& a, const vector<T, N>& b) {
  return sub(c, mul(a, b));
}
template <host::Float T, unsigned N>
accum<accfloat, N> mac_square(const accum<accfloat, N>& c, const vector<T, N>& a) {
  return mac(c, a, a);
}

template <unsigned N>
vector<float, N> neg(const vector<float, N>& a) {
  vector<float, N> v;
  for (unsigned i = 0; i < N; ++i) v.lane[i] = -a.lane[i];
  return v;
}

template <host::Float T, unsigned N>
vector<T, N> abs(const vector<T, N>& a) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) {
    if constexpr (std::same_as<T, float>) {
      v.lane[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(a.lane[i]) & 0x7fffffff);
    } else {
      v.lane[i] = bfloat16::from_bits(a.lane[i].bits() & 0x7fff);
    }
  }
  return v;
}

// Shift left; a bit that leaves is lost.
template <unsigned N>
vector<int32, N> upshift(const vector<int32, N>& a, unsigned by) {
  vector<int32, N> v;
  for (unsigned i = 0; i < N; ++i) {
    v.lane[i] = static_cast<int32>(static_cast<uint32>(a.lane[i]) << by);
  }
  return v;
}

}  // namespace aie
