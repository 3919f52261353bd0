// add, sub, mul, mac, msc, neg, abs and operations on bits, lane by lane.
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
template <typename T>
concept Whole = std::same_as<T, int16> || std::same_as<T, int32>;

template <Whole T, unsigned N, typename F>
vector<T, N> per_word(const vector<T, N>& a, const vector<T, N>& b, F&& f) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) {
    v.lane[i] =
        static_cast<T>(f(static_cast<uint32_t>(a.lane[i]), static_cast<uint32_t>(b.lane[i])));
  }
  return v;
}

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
// Whole numbers wrap.
template <host::Whole T, unsigned N>
vector<T, N> add(const vector<T, N>& a, const vector<T, N>& b) {
  return host::per_word(a, b, [](uint32_t x, uint32_t y) { return x + y; });
}

template <unsigned N>
accum<accfloat, N> sub(const accum<accfloat, N>& a, const accum<accfloat, N>& b) {
  return host::per_lane<N>([&](unsigned i) { return host::add(a.lane[i], -b.lane[i]); });
}
template <host::Float T, unsigned N>
vector<T, N> sub(const vector<T, N>& a, const vector<T, N>& b) {
  return sub(accum<accfloat, N>(a), accum<accfloat, N>(b)).template to_vector<T>();
}

template <host::Whole T, unsigned N>
vector<T, N> sub(const vector<T, N>& a, const vector<T, N>& b) {
  return host::per_word(a, b, [](uint32_t x, uint32_t y) { return x - y; });
}

template <host::Float T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, const vector<T, N>& b) {
  return host::per_lane<N>([&](unsigned i) { return host::product(a.lane[i], b.lane[i]); });
}
template <host::Float T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, T b) {
  return mul(a, broadcast<T, N>(b));
}

template <unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<bfloat16, N>& a,
                       const vector<bfloat16, N>& b) {
  return host::per_lane<N>([&](unsigned i) {
    return host::multiply_add(c.lane[i], host::number(a.lane[i]), host::number(b.lane[i]));
  });
}
template <unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<float, N>& a,
                       const vector<float, N>& b) {
  return add(c, mul(a, b));
}
template <host::Float T, unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<T, N>& a, T b) {
  return mac(c, a, broadcast<T, N>(b));
}
template <unsigned N>
accum<accfloat, N> msc(const accum<accfloat, N>& c, const vector<bfloat16, N>& a,
                       const vector<bfloat16, N>& b) {
  return host::per_lane<N>([&](unsigned i) {
    return host::multiply_add(c.lane[i], -host::number(a.lane[i]), host::number(b.lane[i]));
  });
}
template <host::Float T, unsigned N>
accum<accfloat, N> mac_square(const accum<accfloat, N>& c, const vector<T, N>& a) {
  return mac(c, a, a);
}

// The sign's bit turned, whatever the rest is.
template <unsigned N>
vector<float, N> neg(const vector<float, N>& a) {
  vector<float, N> v;
  for (unsigned i = 0; i < N; ++i) v.lane[i] = -a.lane[i];
  return v;
}

// Peano's abs of bfloat16, and aie2p's of float, clear the sign's bit. aie2's of float is the
// absolute value of the bits as a whole number: -1.0 becomes 4.0.
template <host::Float T, unsigned N>
vector<T, N> abs(const vector<T, N>& a) {
  vector<T, N> v;
  for (unsigned i = 0; i < N; ++i) {
    if constexpr (std::same_as<T, bfloat16>) {
      v.lane[i] = bfloat16::from_bits(a.lane[i].bits() & 0x7fff);
    } else {
      const uint32_t bits = std::bit_cast<uint32_t>(a.lane[i]);
      const bool negated = __AIE_ARCH__ == 20 && bits >> 31 != 0;
      v.lane[i] = std::bit_cast<float>(negated ? 0u - bits : bits & 0x7fffffff);
    }
  }
  return v;
}

template <host::Whole T, unsigned N>
vector<T, N> bit_and(T a, const vector<T, N>& b) {
  return host::per_word(broadcast<T, N>(a), b, [](uint32_t x, uint32_t y) { return x & y; });
}
template <host::Whole T, unsigned N>
vector<T, N> bit_or(const vector<T, N>& a, const vector<T, N>& b) {
  return host::per_word(a, b, [](uint32_t x, uint32_t y) { return x | y; });
}

// Shift left; a bit that leaves is lost.
template <host::Whole T, unsigned N>
vector<T, N> upshift(const vector<T, N>& a, unsigned by) {
  return host::per_word(a, a, [by](uint32_t x, uint32_t) { return x << by; });
}

}  // namespace aie
