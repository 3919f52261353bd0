// A tile's accumulators on AVX-512: eight lanes an output, two outputs in a register.
#pragma once

#include "kernels/cpu/vector/simd.h"

#if defined(__AVX512F__)

namespace onnx_iron {
namespace ONNX_IRON_PATH {

inline constexpr int kSumColumns = 16;

// Loaded once for all that use it: the compiler would load it with each use, and loads are what a
// tile has the least of.
template <typename Vector>
ONNX_IRON_INLINE Vector in_register(Vector x) {
  asm("" : "+v"(x));
  return x;
}

// Asks for a part of what the next block's panel is made of, while this one is used: of the rows
// first.. of a matrix the bytes from..to, cut into `parts`. Such rows are too short for the
// processor to see them coming. They may be past the matrix's end, which a prefetch may be.
ONNX_IRON_INLINE void ask_for_rows(const void* x, int64_t row_bytes, int64_t first, int64_t from,
                                   int64_t to, int64_t part, int64_t parts) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (to - from + kLine - 1) / kLine;
  const int64_t begin = lines * part / parts * kLine, end = lines * (part + 1) / parts * kLine;
  const char* row = static_cast<const char*>(x) + first * row_bytes + from;
  for (int r = 0; r < kSumColumns; ++r, row += row_bytes) {
    for (int64_t at = begin; at < end; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }
}

// Those of columns 2c and 2c + 1 are v[r][c].
template <int rows>
struct TileSums {
  __m512 v[rows][kSumColumns / 2] = {};
};

// The sums of a row's lanes, a column each, in simd.h's order.
template <int rows>
ONNX_IRON_INLINE void finish_row(const TileSums<rows>& sums, int r, float* out) {
  __m512 halves[4];  // lanes l and l + 4 added, of four columns
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 x = sums.v[r][2 * i], y = sums.v[r][2 * i + 1];
    halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
  }
  __m512 quarters[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 x = halves[2 * i], y = halves[2 * i + 1];
    quarters[i] = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
  }
  const __m512 whole = _mm512_add_ps(_mm512_shuffle_ps(quarters[0], quarters[1], 0x88),
                                     _mm512_shuffle_ps(quarters[0], quarters[1], 0xdd));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_ps(out, _mm512_permutexvar_ps(order, whole));
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron

#endif
