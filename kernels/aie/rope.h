// RoPE of rows that share a row of angles (cos0, sin0, cos1, sin1, ...). y may be x.
#pragma once

#include "common.h"

namespace onnx_iron::aie_kernels {

inline constexpr unsigned kFrequencies = 16;
using Part = Halves<kFrequencies>;

struct Turned {
  Part one, two;
};

inline Turned turn(const Part& one, const Part& two, const bfloat16* angles) {
  const Halves<2 * kFrequencies> pairs = aie::load_v<2 * kFrequencies>(angles);
  const Part cosine = aie::filter_even(pairs), sine = aie::filter_odd(pairs);
  return {aie::msc(aie::mul(one, cosine), two, sine).to_vector<bfloat16>(),
          aie::mac(aie::mul(two, cosine), one, sine).to_vector<bfloat16>()};
}

inline void turn_halves(const bfloat16* x, const bfloat16* angles, bfloat16* y, int32_t head_dim) {
  const int32_t half = head_dim / 2;
  for_vectors<kFrequencies>(half, [&](int32_t i) {
    const Turned turned = turn(aie::load_v<kFrequencies>(x + i),
                               aie::load_v<kFrequencies>(x + half + i), angles + 2 * i);
    aie::store_v(y + i, turned.one);
    aie::store_v(y + half + i, turned.two);
  });
}

inline void turn_pairs(const bfloat16* x, const bfloat16* angles, bfloat16* y, int32_t head_dim) {
  for_vectors<2 * kFrequencies>(head_dim, [&](int32_t i) {
    const Halves<2 * kFrequencies> pairs = aie::load_v<2 * kFrequencies>(x + i);
    const Turned turned = turn(aie::filter_even(pairs), aie::filter_odd(pairs), angles + i);
    const auto [low, high] = aie::interleave_zip(turned.one, turned.two, 1);
    aie::store_v(y + i, low);
    aie::store_v(y + i + kFrequencies, high);
  });
}

template <typename Turn>
void of_rows(const bfloat16* x, const bfloat16* angles, bfloat16* y, int32_t rows, int32_t head_dim,
             Turn&& turn_row) {
  const NearestEven rounding;
  for (int32_t r = 0; r < rows; ++r) turn_row(x + r * head_dim, angles, y + r * head_dim, head_dim);
}

}  // namespace onnx_iron::aie_kernels
