// gemm.cc's tiles for bfloat16 on AVX-512-BF16, with the same bits. One instruction multiplies
// pairs of elements and adds first the upper, then the lower product to a float32 lane, each sum
// rounded: elements k and k + 8 side by side, k above, make the two fma of gemm.cc's order.
//
// The instruction takes subnormal numbers for zeros, and gives none. A product of bfloat16 is a
// multiple of 2**-14 of its operands' powers of two: where the smallest operands are normal and
// make no sum below float32's normal numbers, that makes no difference. Elsewhere a tile takes fma.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/epilogue.h"

#if defined(__AVX512BF16__)

#include "kernels/cpu/vector/tile_sums.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

constexpr int kRows = kGroupRows;
constexpr int kColumns = kTileColumns;
constexpr int kGroups = kTileRows / kRows;
// Elements of K in a step, and steps in a block: a panel of b takes 24 KB.
constexpr int64_t kStep = 16;
constexpr int64_t kBlockSteps = 48;

using Sums = TileSums<kRows>;
static_assert(kColumns == kSumColumns);

ONNX_IRON_INLINE int64_t steps_of(int64_t k) { return (k + kStep - 1) / kStep; }

// The smallest magnitude but zero, less one: zeros become the largest.
struct Least {
  __m512i v = _mm512_set1_epi16(-1);
};

ONNX_IRON_INLINE void see(Least& least, __m512i x) {
  const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
  least.v = _mm512_min_epu16(least.v, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
}
// Its exponent as it is stored; at most one too low.
ONNX_IRON_INLINE int exponent_of(const Least& least) {
  alignas(64) uint16_t lanes[32];
  _mm512_store_si512(lanes, least.v);
  uint16_t smallest = lanes[0];
  for (const uint16_t lane : lanes) smallest = lane < smallest ? lane : smallest;
  return smallest >> 7;
}

// Whether no operand is subnormal, and sums of products are multiples of float32's smallest normal
// number at the least: (a - 127 - 7) + (b - 127 - 7) >= -126.
ONNX_IRON_INLINE bool stay_normal(int a, int b) { return a > 0 && b > 0 && a + b >= 142; }

// Rows first.. of x, of `width` elements, from step `from` to `to` of each row, in pairs; rows from
// `rows` on, and elements past the width, are zeros.
template <int height>
ONNX_IRON_INLINE void pair_up(const bf16* x, int64_t first, int64_t rows, int64_t width,
                              int64_t from, int64_t to, uint16_t* out, Least& least) {
  alignas(64) static constexpr uint16_t kOrder[32] = {8,  0,  9,  1,  10, 2,  11, 3,  12, 4,  13,
                                                      5,  14, 6,  15, 7,  24, 16, 25, 17, 26, 18,
                                                      27, 19, 28, 20, 29, 21, 30, 22, 31, 23};
  const __m512i order = _mm512_load_si512(kOrder);
  constexpr int64_t kStride = height * kStep;
  for (int64_t r = 0; r < height; ++r) {
    uint16_t* at = out + r * kStep;
    const bool there = first + r < rows;
    const bf16* row = x + (there ? first + r : 0) * width;
    for (int64_t s = from; s < to; s += 2, at += 2 * kStride) {
      const int64_t left = there ? width - s * kStep : 0;
      const __mmask32 mask =
          left >= 2 * kStep ? ~__mmask32{0} : (__mmask32{1} << (left < 0 ? 0 : left)) - 1;
      const __m512i elements = _mm512_maskz_loadu_epi16(mask, row + s * kStep);
      see(least, elements);
      const __m512i pairs = _mm512_permutexvar_epi16(order, elements);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_castsi512_si256(pairs));
      if (s + 1 < to) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + kStride),
                            _mm512_extracti64x4_epi64(pairs, 1));
      }
    }
  }
}

ONNX_IRON_INLINE __m512i twice(const uint16_t* p) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// sums[r][c] += a[r] * b[c], pairs in eight lanes each, over `steps` steps.
ONNX_IRON_INLINE void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, Sums& sums) {
  for (int64_t s = 0; s < steps; ++s, a += kRows * kStep, b += kColumns * kStep) {
    const __m512i rows[kRows] = {twice(a), twice(a + kStep), twice(a + 2 * kStep)};
#pragma GCC unroll 8
    for (int c = 0; c < kColumns / 2; ++c) {
      const __m512i columns = in_register(_mm512_loadu_si512(b + 2 * kStep * c));
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        sums.v[r][c] = _mm512_dpbf16_ps(sums.v[r][c], (__m512bh)rows[r], (__m512bh)columns);
      }
    }
  }
}

ONNX_IRON_INLINE __m512 upper(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}
ONNX_IRON_INLINE __m512 lower(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

// The same where subnormal numbers may come up.
ONNX_IRON_INLINE void multiply_small(const uint16_t* a, const uint16_t* b, int64_t steps,
                                     Sums& sums) {
  for (int64_t s = 0; s < steps; ++s, a += kRows * kStep, b += kColumns * kStep) {
    for (int c = 0; c < kColumns / 2; ++c) {
      const __m512i columns = _mm512_loadu_si512(b + 2 * kStep * c);
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = twice(a + kStep * r);
        __m512& sum = sums.v[r][c];
        sum = _mm512_fmadd_ps(upper(row), upper(columns), sum);
        sum = _mm512_fmadd_ps(lower(row), lower(columns), sum);
      }
    }
  }
}

// A group of rows: its pairs, and past them its smallest exponent.
struct Group {
  uint16_t* pairs;
  int* exponent;
};

ONNX_IRON_INLINE Group group_at(const float* packed, int64_t k, int64_t group) {
  float* at = const_cast<float*>(packed) + group * group_floats(k);
  return {reinterpret_cast<uint16_t*>(at), reinterpret_cast<int*>(at + kRows * padded(k))};
}

}  // namespace

template <>
void pack<bf16>(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end) {
  for (int64_t group = begin; group < end; ++group) {
    const Group to = group_at(packed, k, group);
    Least least;
    pair_up<kRows>(static_cast<const bf16*>(a), group * kRows, m, k, 0, steps_of(k), to.pairs,
                   least);
    *to.exponent = exponent_of(least);
  }
}

template <>
void gemm<bf16>(const float* packed, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue) {
  alignas(64) uint16_t panel[kBlockSteps * kStep * kColumns];
  // Not set before it is used: only what a block leaves to the next is ever read.
  alignas(64) std::byte kept[kGroups][sizeof(Sums)];
  alignas(64) float tile[kTileRows][kColumns];
  const int64_t steps = steps_of(k);
  const int64_t blocks = steps <= kBlockSteps ? 1 : (steps + kBlockSteps - 1) / kBlockSteps;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t from = steps * block / blocks, to = steps * (block + 1) / blocks;
    Least least;
    pair_up<kColumns>(static_cast<const bf16*>(b), column, n, k, from, to, panel, least);
    const int exponent = exponent_of(least);
    for (int64_t g = group; g < group_end; ++g) {
      const Group held = group_at(packed, k, g);
      const uint16_t* rows = held.pairs + from * kRows * kStep;
      Sums sums;
      if (block > 0) std::memcpy(&sums, kept[g - group], sizeof(Sums));
      const int64_t next = block + 1 < blocks ? to : 0;
      const int64_t next_end = next + to - from < steps ? next + to - from : steps;
      ask_for_rows(b, k * sizeof(bf16), next > 0 ? column : column + kColumns, next * kStep * 2,
                   next_end * kStep * 2, g - group, group_end - group);
      if (stay_normal(*held.exponent, exponent)) {
        multiply(rows, panel, to - from, sums);
      } else {
        multiply_small(rows, panel, to - from, sums);
      }
      if (block + 1 < blocks) {
        std::memcpy(kept[g - group], &sums, sizeof(Sums));
      } else {
        for (int r = 0; r < kRows; ++r) finish_row(sums, r, tile[(g - group) * kRows + r]);
      }
    }
  }
  bf16* to = static_cast<bf16*>(out);
  const int64_t columns = n - column < kColumns ? n - column : kColumns;
  for (int64_t row = group * kRows; row < group_end * kRows && row < m; ++row) {
    finish(epilogue, tile[row - group * kRows], to + row * n + column, columns);
  }
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron

#endif
