// Small matrix products with float32 sums.
#pragma once

#include "arithmetic.hpp"

namespace aie {

template <unsigned M, unsigned K, unsigned N, typename A, typename B>
class mmul;

// The shape that aie2 and aie2p both have. UNKNOWN: the order of the sum over K.
template <>
class mmul<4, 8, 8, bfloat16, bfloat16> {
 public:
  static constexpr unsigned M = 4, K = 8, N = 8;
  static constexpr unsigned size_A = M * K, size_B = K * N, size_C = M * N;
  using accum_type = accum<accfloat, size_C>;

  explicit mmul(const accum_type& sums) : sums_(sums) {}

  void mac(const vector<bfloat16, size_A>& a, const vector<bfloat16, size_B>& b) {
    std::array<float, size_B> right;
    for (unsigned i = 0; i < size_B; ++i) right[i] = host::number(b.lane[i]);
    for (unsigned m = 0; m < M; ++m) {
      float* sum = &sums_.lane[m * N];
      for (unsigned k = 0; k < K; ++k) {
        const float left = host::number(a.lane[m * K + k]);
        for (unsigned n = 0; n < N; ++n) {
          sum[n] = host::flush(sum[n] + host::multiply_halves(left, right[k * N + n]));
        }
      }
    }
  }

  accum_type to_accum() const { return sums_; }

 private:
  accum_type sums_;
};

}  // namespace aie
