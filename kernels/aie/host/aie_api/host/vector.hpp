// aie::vector, aie::accum and aie::mask.
#pragma once

#include <array>
#include <bit>
#include <concepts>

#include "scalar.hpp"

struct accfloat {};

namespace aie {

template <typename T>
concept Element = std::same_as<T, bfloat16> || std::same_as<T, float> || std::same_as<T, int16> ||
                  std::same_as<T, int32>;

constexpr bool is_vector_width(size_t bits) {
  return bits >= 128 && bits <= 2048 && std::has_single_bit(bits);
}

template <Element T, unsigned N>
  requires(is_vector_width(N * sizeof(T) * 8))
class vector {
 public:
  using value_type = T;
  static constexpr unsigned size() { return N; }

  T get(unsigned i) const { return lane[i]; }
  void set(T value, unsigned i) { lane[i] = value; }

  // The same bits as another type of the same width.
  template <Element U>
    requires(sizeof(U) == sizeof(T))
  vector<U, N> cast_to() const {
    vector<U, N> cast;
    for (unsigned i = 0; i < N; ++i) cast.lane[i] = std::bit_cast<U>(lane[i]);
    return cast;
  }

  std::array<T, N> lane;  // the host model's own; no kernel touches it
};

template <typename Tag, unsigned N>
class accum;

template <unsigned N>
  requires(N >= 8 && N <= 64 && std::has_single_bit(N))
class accum<accfloat, N> {
 public:
  using value_type = accfloat;
  static constexpr unsigned size() { return N; }

  accum() = default;
  explicit accum(const vector<float, N>& v) {
    for (unsigned i = 0; i < N; ++i) lane[i] = host::flush(v.lane[i]);
  }
  explicit accum(const vector<bfloat16, N>& v) {
    for (unsigned i = 0; i < N; ++i) lane[i] = host::widen(v.lane[i].bits());
  }

  template <typename T>
    requires(std::same_as<T, float> || std::same_as<T, bfloat16>)
  vector<T, N> to_vector() const {
    vector<T, N> v;
    if constexpr (std::same_as<T, float>) {
      v.lane = lane;
    } else if (host::mode == rounding_mode::conv_even) {
      for (unsigned i = 0; i < N; ++i) {
        v.lane[i] = bfloat16::from_bits(host::round(lane[i], rounding_mode::conv_even));
      }
    } else {
      for (unsigned i = 0; i < N; ++i) {
        v.lane[i] = bfloat16::from_bits(host::round(lane[i], host::mode));
      }
    }
    return v;
  }

  std::array<float, N> lane;  // the host model's own; no kernel touches it
};

template <unsigned N>
class mask {
 public:
  mask operator|(const mask& other) const {
    mask both;
    for (unsigned i = 0; i < N; ++i) both.lane[i] = lane[i] || other.lane[i];
    return both;
  }

  std::array<bool, N> lane;  // the host model's own; no kernel touches it
};

template <Element T, unsigned N>
vector<T, N> broadcast(T value) {
  vector<T, N> v;
  v.lane.fill(value);
  return v;
}

template <Element T, unsigned N>
vector<T, N> zeros() {
  return broadcast<T, N>(T(0));
}

template <std::same_as<accfloat> Tag, unsigned N>
accum<accfloat, N> zeros() {
  return accum<accfloat, N>(broadcast<float, N>(0.0f));
}

}  // namespace aie
