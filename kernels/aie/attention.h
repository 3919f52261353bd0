// What attention's kernels share: scores, their weights, and sums of weighted values.
//
// Scores, weights and sums are float32; a weight meets its value in two bfloat16 limbs.
#pragma once

#include "functions.h"

namespace onnx_iron::aie_kernels {

inline constexpr int32_t kScores = 16;      // entries whose weights are taken at once
inline constexpr float kLowest = -3.0e38f;  // the maximum of no entries: below every finite score

inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
inline int32_t most(int32_t a, int32_t b) { return a < b ? b : a; }

inline float dot(const bfloat16* a, const bfloat16* b, int32_t dim) {
  Sums<kLanes> sum = aie::zeros<accfloat, kLanes>();
  for_vectors(dim, [&](int32_t i) {
    sum = aie::mac(sum, aie::load_v<kLanes>(a + i), aie::load_v<kLanes>(b + i));
  });
  return aie::reduce_add(sum.to_vector<float>());
}

// An infinite score has no limbs: there the product of the leading ones counts.
inline Floats<kScores> scaled_scores(const Floats<kScores>& scores, float scale) {
  const Floats<kScores> by = aie::broadcast<float, kScores>(scale);
  const Floats<kScores> leading =
      aie::mul(round<kScores>(scores), round<kScores>(by)).to_vector<float>();
  return aie::select(multiply<kScores>(scores, by), leading,
                     aie::ge(size_bits<kScores>(scores), kInfinityBits));
}

// exp(scores - highest), the highest at least each score.
inline Floats<kScores> weights_of(const Floats<kScores>& scores, float highest) {
  return decay<kScores>(aie::sub(aie::broadcast<float, kScores>(highest), scores));
}

// How much of what was gathered under a lower maximum is left.
inline float faded(float before, float highest) {
  return decay<kScores>(aie::broadcast<float, kScores>(highest - before)).get(0);
}

inline float reciprocal_of(float x) {
  return reciprocal<kLanes>(aie::broadcast<float, kLanes>(x)).get(0);
}

struct TwoLimbs {
  explicit TwoLimbs(const Floats<kScores>& x)
      : high(round<kScores>(x)), low(round<kScores>(aie::sub(x, widen<kScores>(high)))) {}
  Halves<kScores> high, low;
};

// sum + value * weight. An infinite value meets the high limb only, for the low one may be 0.
inline Sums<kLanes> add_weighted(const Sums<kLanes>& sum, const Halves<kLanes>& value,
                                 bfloat16 high, bfloat16 low) {
  const auto size = aie::bit_and(int16(0x7fff), value.template cast_to<int16>());
  const Halves<kLanes> finite =
      aie::select(value, aie::zeros<bfloat16, kLanes>(), aie::ge(size, int16(0x7f80)));
  return aie::mac(aie::mac(sum, finite, low), value, high);
}

}  // namespace onnx_iron::aie_kernels
