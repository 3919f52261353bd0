// Elements of a matrix in codes, eight at a time.
#pragma once

#include "kernels/cpu/loops.h"
#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

// Eight codes from byte `p` on.
template <int bits>
ONNX_IRON_INLINE F8 codes_at(const uint8_t* p) {
  uint64_t packed = 0;
  std::memcpy(&packed, p, bits);
#if defined(__AVX2__)
  if constexpr (bits == 8) {
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(packed));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))};
  }
  const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(packed));
  const __m256i moved = _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  return {_mm256_cvtepi32_ps(_mm256_and_si256(moved, _mm256_set1_epi32(15)))};
#else
  float lanes[8];
  for (float& lane : lanes) {
    lane = static_cast<float>(packed & ((1u << bits) - 1));
    packed >>= bits;
  }
  return load(lanes);
#endif
}

// What a block's elements have in common.
struct BlockScale {
  float zero, scale;
};

template <typename T, int bits>
ONNX_IRON_INLINE BlockScale scale_of(const Codes& of, int64_t row, int64_t block) {
  const float scale = widen_one(static_cast<const T*>(of.scales)[row * of.blocks + block]);
  if (of.zeros == nullptr) return {bits == 4 ? 8.0f : 128.0f, scale};
  if (of.real_zeros) {
    return {widen_one(static_cast<const T*>(of.zeros)[row * of.blocks + block]), scale};
  }
  const uint8_t* zeros = static_cast<const uint8_t*>(of.zeros);
  if constexpr (bits == 8) return {static_cast<float>(zeros[row * of.blocks + block]), scale};
  const uint8_t byte = zeros[row * ((of.blocks + 1) / 2) + block / 2];
  return {static_cast<float>(block % 2 == 0 ? byte & 15 : byte >> 4), scale};
}

ONNX_IRON_INLINE const uint8_t* codes_of(const Codes& of, int64_t row) {
  return of.codes + row * of.blocks * of.block * of.bits / 8;
}

// Gives the eights from..to-1 of a row, the elements from k on as zeros: give(s, eight).
template <typename T, int bits, typename Give>
ONNX_IRON_INLINE void for_decoded(const Codes& of, int64_t row, int64_t k, int64_t from, int64_t to,
                                  Give&& give) {
  const int64_t in_block = of.block / 8;
  const uint8_t* codes = codes_of(of, row);
  for (int64_t s = from; s < to;) {
    const int64_t block = s / in_block;
    const int64_t end = (block + 1) * in_block < to ? (block + 1) * in_block : to;
    const BlockScale its = scale_of<T, bits>(of, row, block);
    const F8 zero_point = splat(its.zero), scale = splat(its.scale);
    for (; s < end; ++s) {
      F8 eight = mul(sub(codes_at<bits>(codes + s * bits), zero_point), scale);
      if (8 * s + 8 > k) eight = keep_below(eight, k - 8 * s);
      give(s, eight);
    }
  }
}

#if defined(__AVX512F__)

// Two numbers, one in each half.
ONNX_IRON_INLINE __m512 halves_of(float low, float high) {
  return _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(low), _mm512_set1_ps(high));
}

// The same of rows `row` and `row + 1` at once, in the halves of a vector, with for_decoded's bits;
// to * 8 is at most k.
template <typename T, int bits, typename Give>
ONNX_IRON_INLINE void for_decoded_pairs(const Codes& of, int64_t row, int64_t from, int64_t to,
                                        Give&& give) {
  const int64_t in_block = of.block / 8;
  const uint8_t *low = codes_of(of, row), *high = codes_of(of, row + 1);
  for (int64_t s = from; s < to;) {
    const int64_t block = s / in_block;
    const int64_t end = (block + 1) * in_block < to ? (block + 1) * in_block : to;
    const BlockScale first = scale_of<T, bits>(of, row, block);
    const BlockScale second = scale_of<T, bits>(of, row + 1, block);
    if constexpr (bits == 4) {
      // What each of sixteen codes stands for.
      const __m512 every = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      const auto table = [&](const BlockScale& its) __attribute__((always_inline)) {
        return _mm512_mul_ps(_mm512_sub_ps(every, _mm512_set1_ps(its.zero)),
                             _mm512_set1_ps(its.scale));
      };
      const __m512 of_first = table(first), of_second = table(second);
      const __m512i shifts =
          _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
      const __m512i second_half = _mm512_maskz_set1_epi32(0xff00, 16);
      for (; s < end; ++s) {
        int32_t a, b;
        std::memcpy(&a, low + 4 * s, sizeof a);
        std::memcpy(&b, high + 4 * s, sizeof b);
        const __m512i both = _mm512_mask_set1_epi32(_mm512_set1_epi32(a), 0xff00, b);
        // The lower four bits, and a fifth that chooses the table.
        const __m512i index = _mm512_ternarylogic_epi32(_mm512_srlv_epi32(both, shifts),
                                                        _mm512_set1_epi32(15), second_half, 0xea);
        give(s, _mm512_permutex2var_ps(of_first, index, of_second));
      }
    } else {
      const __m512 zeros = halves_of(first.zero, second.zero);
      const __m512 scales = halves_of(first.scale, second.scale);
      for (; s < end; ++s) {
        int64_t a, b;
        std::memcpy(&a, low + 8 * s, sizeof a);
        std::memcpy(&b, high + 8 * s, sizeof b);
        const __m512 codes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_set_epi64x(b, a)));
        give(s, _mm512_mul_ps(_mm512_sub_ps(codes, zeros), scales));
      }
    }
  }
}

#endif

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
