// RMSNorm of rows: the quotient is rounded, then the product with the weight. y may be x.
#pragma once

#include "common.h"

namespace onnx_iron::aie_kernels {

// finish(i, normalised vector) gives what is stored.
template <typename Finish>
void normalise(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n, float epsilon,
               Finish&& finish) {
  const NearestEven rounding;
  for (int32_t r = 0; r < rows; ++r, x += n, y += n) {
    Sums<kLanes> squares = aie::zeros<accfloat, kLanes>();
    for_vectors(n,
                [&](int32_t i) { squares = aie::mac_square(squares, aie::load_v<kLanes>(x + i)); });
    const float mean = aie::reduce_add(squares.to_vector<float>()) / static_cast<float>(n);
    const Factor<kLanes> scale(reciprocal_root(mean + epsilon));
    for_vectors(n, [&](int32_t i) {
      const Halves<kLanes> scaled = (scale * aie::load_v<kLanes>(x + i)).to_vector<bfloat16>();
      aie::store_v(y + i, finish(i, scaled));
    });
  }
}

// The same, times a weight.
inline void normalise_weighted(const bfloat16* x, const bfloat16* weight, bfloat16* y, int32_t rows,
                               int32_t n, float epsilon) {
  normalise(x, y, rows, n, epsilon, [&](int32_t i, const Halves<kLanes>& normalised) {
    return aie::mul(normalised, aie::load_v<kLanes>(weight + i)).to_vector<bfloat16>();
  });
}

}  // namespace onnx_iron::aie_kernels
