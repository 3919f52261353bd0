// What becomes of a query row's scores with a chunk of keys: both ways to make them share it.
#pragma once

#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/exponentials.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

inline constexpr float kLowest = -3.40282347e38f;
inline constexpr float kMinusInfinity = -__builtin_inff();

ONNX_IRON_INLINE float bias_at(const AttentionChunk& chunk, const AttentionRow& row, int64_t j) {
  return chunk.float_bias ? static_cast<const float*>(row.bias)[j]
                          : widen_one(static_cast<const bf16*>(row.bias)[j]);
}

ONNX_IRON_INLINE bool is_seen(const AttentionChunk& chunk, const AttentionRow& row, int64_t j) {
  return j >= row.first && j < row.last && (row.mask == nullptr || row.mask[j] != 0) &&
         (row.bias == nullptr || bias_at(chunk, row, j) != kMinusInfinity);
}

inline bool sees_any(const AttentionChunk& chunk, const AttentionRow& row) {
  for (int64_t j = row.first; j < row.last; ++j) {
    if (is_seen(chunk, row, j)) return true;
  }
  return false;
}

// Minus infinity hides a key, whatever its score is.
template <typename T>
ONNX_IRON_INLINE void add_bias(const void* biases, int64_t keys, float* scores) {
  const T* from = static_cast<const T*>(biases);
  for_eights(keys, [&](int64_t j, auto load_part, auto store_part) {
    const F8 bias = load_part(from + j), moved = add(load_part(scores + j), bias);
    store_part(scores + j, where_less(bias, splat(kLowest), splat(kMinusInfinity), moved));
  });
}

// What becomes of scaled products with keys begin..end-1, beside hiding those that the row does not
// see by its place.
inline void change_scores(const AttentionChunk& chunk, const AttentionRow& row, int64_t begin,
                          int64_t end, float* scores) {
  if (chunk.softcap != 0.0f) {
    const Wide cap = all<Wide>(chunk.softcap);
    for (int64_t j = begin; j < end; j += kWide) {
      keep(scores + j, mul(cap, tanh(div(wide_at(scores + j), cap))));
    }
  }
  if (row.slope != 0.0f) {
    for (int64_t j = begin; j < end; ++j) {
      scores[j] += row.slope * (row.away + static_cast<float>(j));
    }
  }
  if (row.offset != 0.0f) {
    for (int64_t j = begin; j < end; ++j) scores[j] += row.offset;
  }
  if (row.bias != nullptr && chunk.float_bias) add_bias<float>(row.bias, row.last, scores);
  if (row.bias != nullptr && !chunk.float_bias) add_bias<bf16>(row.bias, row.last, scores);
  if (row.mask != nullptr) {
    for (int64_t j = row.first; j < row.last; ++j) {
      scores[j] = row.mask[j] != 0 ? scores[j] : kMinusInfinity;
    }
  }
}

// Keys whose weights are summed in lanes of their own, and vectors that hold them.
inline constexpr int kLanes = 32;
inline constexpr int kParts = kLanes / kWide;

// Products with keys become exp(score - largest), and the record gets that largest score and their
// sum, in kLanes lanes, key j in lane j % kLanes. `begin` and `end` are whole numbers of kLanes.
inline void weigh_scores(const AttentionChunk& chunk, const AttentionRow& row, int64_t begin,
                         int64_t end, float* scores, float* largest, float* total) {
  if (row.first >= row.last) {
    for (int64_t j = begin; j < end; ++j) scores[j] = 0.0f;
    *largest = kMinusInfinity;
    *total = 0.0f;
    return;
  }
  const Wide by = all<Wide>(chunk.scale);
  Wide wides[kParts];
  // Not -inf, which a score may be: -inf - -inf is NaN.
  for (Wide& wide : wides) wide = all<Wide>(kLowest);
  const bool plain = chunk.softcap == 0.0f && row.slope == 0.0f && row.offset == 0.0f &&
                     row.bias == nullptr && row.mask == nullptr;
  if (plain && row.first <= begin && row.last >= end) {
    for (int64_t j = begin; j < end; j += kLanes) {
      for (int part = 0; part < kParts; ++part) {
        float* at = scores + j + part * kWide;
        const Wide score = mul(wide_at(at), by);
        keep(at, score);
        wides[part] = larger(score, wides[part]);
      }
    }
  } else {
    for (int64_t j = begin; j < end; j += kWide) keep(scores + j, mul(wide_at(scores + j), by));
    if (!plain) change_scores(chunk, row, begin, end, scores);
    for (int64_t j = begin; j < row.first; ++j) scores[j] = kMinusInfinity;
    for (int64_t j = row.last; j < end; ++j) scores[j] = kMinusInfinity;
    for (int64_t j = begin; j < end; j += kWide) wides[0] = larger(wide_at(scores + j), wides[0]);
  }
  for (int part = 1; part < kParts; ++part) wides[0] = larger(wides[0], wides[part]);
  const float most = largest_lane(larger_half(wides[0]));
  const Wide offset = all<Wide>(most);
  Wide sums[kParts];
  for (Wide& lanes : sums) lanes = all<Wide>(0.0f);
  for (int64_t j = begin; j < end; j += kLanes) {
    for (int part = 0; part < kParts; ++part) {
      float* at = scores + j + part * kWide;
      const Wide weights = fast_exp(sub(wide_at(at), offset));
      keep(at, weights);
      sums[part] = add(sums[part], weights);
    }
  }
  *total = sum_lanes(sums);
  *largest = *total == 0.0f && !sees_any(chunk, row) ? kMinusInfinity : most;
}

inline bool all_finite(const float* x, int64_t width) {
  F8 differences = zero();
  int64_t i = 0;
  for (; i + kWide <= width; i += kWide) {
    const Wide part = wide_at(x + i);
    differences = add_eights(differences, sub(part, part));
  }
  for (; i < width; i += 8) {
    const F8 part = load(x + i);
    differences = add(differences, sub(part, part));
  }
  return sum(differences) == 0.0f;
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
