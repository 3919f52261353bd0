// Elements of a matrix in codes, eight at a time.
#pragma once

#include "kernels/cpu/loops.h"
#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

// Eight codes from byte `p` on.
ONNX_IRON_INLINE F8 codes_at(const uint8_t* p, int64_t bits) {
  uint64_t packed = 0;
  std::memcpy(&packed, p, bits);
#if defined(__AVX2__)
  if (bits == 8) {
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
  F8 zero, scale;
};

template <typename T>
ONNX_IRON_INLINE BlockScale scale_of(const Codes& of, int64_t row, int64_t block) {
  float zero = of.bits == 4 ? 8.0f : 128.0f;
  if (of.zeros != nullptr && of.real_zeros) {
    zero = widen_one(static_cast<const T*>(of.zeros)[row * of.blocks + block]);
  } else if (of.zeros != nullptr) {
    const uint8_t* zeros = static_cast<const uint8_t*>(of.zeros);
    const uint8_t byte = zeros[row * ((of.blocks * of.bits + 7) / 8) + block * of.bits / 8];
    zero = of.bits == 8 ? byte : block % 2 == 0 ? byte & 15 : byte >> 4;
  }
  return {splat(zero), splat(widen_one(static_cast<const T*>(of.scales)[row * of.blocks + block]))};
}

// Gives the eights from..to-1 of a row, the elements from k on as zeros: to(s, eight).
template <typename T, typename To>
ONNX_IRON_INLINE void for_decoded(const Codes& of, int64_t row, int64_t k, int64_t from, int64_t to,
                                  To&& give) {
  const int64_t in_block = of.block / 8;
  const uint8_t* codes = of.codes + row * of.blocks * of.block * of.bits / 8;
  for (int64_t s = from; s < to;) {
    const int64_t block = s / in_block;
    const int64_t end = (block + 1) * in_block < to ? (block + 1) * in_block : to;
    const BlockScale its = scale_of<T>(of, row, block);
    for (; s < end; ++s) {
      F8 eight = mul(sub(codes_at(codes + s * of.bits, of.bits), its.zero), its.scale);
      if (8 * s + 8 > k) eight = keep_below(eight, k - 8 * s);
      give(s, eight);
    }
  }
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
