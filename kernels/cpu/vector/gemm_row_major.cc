// a (M, K) by b (K, N). Each output is one lane's sum in ascending k, so that a row's bits do not
// depend on the other rows.
#include <cstring>

#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/epilogue.h"
#include "kernels/cpu/vector/tile_sums.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Vectors of columns; with two of them a row, as many rows as the registers hold.
#if defined(__AVX512F__)

struct Wide {
  __m512 v;
};
constexpr int kLanes = 16;
ONNX_IRON_INLINE Wide wide_at(const float* p) { return {_mm512_loadu_ps(p)}; }
ONNX_IRON_INLINE Wide wide_at(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
ONNX_IRON_INLINE void keep(float* p, Wide x) { _mm512_storeu_ps(p, x.v); }
ONNX_IRON_INLINE Wide everywhere(float x) { return {in_register(_mm512_set1_ps(x))}; }
ONNX_IRON_INLINE Wide fma(Wide a, Wide b, Wide c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

#else

using Wide = F8;
constexpr int kLanes = 8;
template <typename T>
ONNX_IRON_INLINE Wide wide_at(const T* p) {
  return load(p);
}
ONNX_IRON_INLINE void keep(float* p, Wide x) { store(p, x); }
ONNX_IRON_INLINE Wide everywhere(float x) { return splat(x); }

#endif

constexpr int kVectors = 2;
constexpr int kTogether = kVectors * kLanes;
static_assert(kRowMajorTileColumns % kTogether == 0);
// Rows of b in a block of 16 KB.
constexpr int64_t kBlockRows = 64;
// Rows of b from its use to what is asked for.
constexpr int64_t kAhead = 16;

// sums[r] += a[k][r] * b[k] over `steps` rows of b, `stride` elements apart, kTogether columns.
template <int rows, bool ahead, typename T>
ONNX_IRON_INLINE void multiply(const float* a, const T* b, int64_t stride, int64_t steps,
                               float* sums) {
  Wide held[rows][kVectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      held[r][v] = wide_at(sums + r * kRowMajorTileColumns + v * kLanes);
    }
  }
  for (int64_t k = 0; k < steps; ++k, a += rows, b += stride) {
    if constexpr (ahead) {
      // It may be past the end, which a prefetch may be.
      const char* next = reinterpret_cast<const char*>(b + kAhead * stride);
      for (size_t line = 0; line < kTogether * sizeof(T); line += 64) {
        __builtin_prefetch(next + line);
      }
    }
    const Wide low = wide_at(b), high = wide_at(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const Wide same = everywhere(a[r]);
      held[r][0] = fma(same, low, held[r][0]);
      held[r][1] = fma(same, high, held[r][1]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      keep(sums + r * kRowMajorTileColumns + v * kLanes, held[r][v]);
    }
  }
}

// A group of any number of rows by kRowMajorTileColumns columns.
template <bool ahead, int rows = kRowMajorGroup, typename T>
ONNX_IRON_INLINE void multiply_group(int64_t count, const float* a, const T* b, int64_t stride,
                                     int64_t steps, float* sums) {
  if constexpr (rows > 1) {
    if (count < rows) {
      return multiply_group<ahead, rows - 1>(count, a, b, stride, steps, sums);
    }
  }
  for (int64_t at = 0; at < kRowMajorTileColumns; at += kTogether) {
    multiply<rows, ahead>(a, b + at, stride, steps, sums + at);
  }
}

// Asks for a part of the block to come, while this one is used. It may be past b's end, which a
// prefetch may be.
template <typename T>
ONNX_IRON_INLINE void ask_for_block(const T* b, int64_t n, int64_t part, int64_t parts) {
  const int64_t end = kBlockRows * (part + 1) / parts;
  for (int64_t s = kBlockRows * part / parts; s < end; ++s) {
    const char* row = reinterpret_cast<const char*>(b + s * n);
    for (size_t at = 0; at < kRowMajorTileColumns * sizeof(T); at += 64) {
      __builtin_prefetch(row + at, 0, 2);
    }
  }
}

// `steps` rows of b, of which `columns` are there; zeros past them.
template <typename T>
ONNX_IRON_INLINE void copy_block(const T* b, int64_t n, int64_t steps, int64_t columns,
                                 float* block) {
  for (int64_t s = 0; s < steps; ++s, b += n, block += kRowMajorTileColumns) {
    for (int64_t c = 0; c < kRowMajorTileColumns; c += 8) {
      if (c + 8 <= columns) {
        store(block + c, load(b + c));
      } else {
        store(block + c, c < columns ? load_part(b + c, columns - c) : zero());
      }
    }
  }
}

// Rows of a group: as even as they come in as few groups as there are.
ONNX_IRON_INLINE int64_t group_rows(int64_t m) {
  const int64_t groups = (m + kRowMajorGroup - 1) / kRowMajorGroup;
  return (m + groups - 1) / groups;
}

}  // namespace

template <typename T>
void pack_rows(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end) {
  const int64_t most = group_rows(m);
  for (int64_t group = begin; group < end; ++group) {
    const int64_t first = group * most;
    const int64_t rows = m - first < most ? m - first : most;
    const T* from = static_cast<const T*>(a) + first * k;
    float* to = packed + first * k;
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t r = 0; r < rows; ++r) *to++ = widen_one(from[r * k + i]);
    }
  }
}

template <typename T>
void gemm_row_major(const float* packed, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                    int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue) {
  alignas(64) float block[kBlockRows * kRowMajorTileColumns];
  alignas(64) float tile[kRowMajorTileRows * kRowMajorTileColumns];
  const int64_t most = group_rows(m);
  const int64_t row = group * most;
  const int64_t row_end = group_end * most < m ? group_end * most : m;
  std::memset(tile, 0, (row_end - row) * kRowMajorTileColumns * sizeof(float));
  const int64_t columns =
      n - column < kRowMajorTileColumns ? n - column : int64_t{kRowMajorTileColumns};
  // Rows that are used once need no copy.
  const bool direct = group_end - group == 1 && columns == kRowMajorTileColumns;
  for (int64_t from = 0; from < k; from += kBlockRows) {
    const int64_t steps = k - from < kBlockRows ? k - from : kBlockRows;
    const T* rows = static_cast<const T*>(b) + from * n + column;
    if (!direct) copy_block(rows, n, steps, columns, block);
    const T* next = from + kBlockRows < k
                        ? rows + kBlockRows * n
                        : static_cast<const T*>(b) + column + kRowMajorTileColumns;
    for (int64_t g = group; g < group_end; ++g) {
      if (!direct) ask_for_block(next, n, g - group, group_end - group);
      const int64_t first = g * most;
      const int64_t count = m - first < most ? m - first : most;
      const float* a = packed + first * k + from * count;
      float* sums = tile + (first - row) * kRowMajorTileColumns;
      if (direct) {
        multiply_group<true>(count, a, rows, n, steps, sums);
      } else {
        multiply_group<false>(count, a, block, kRowMajorTileColumns, steps, sums);
      }
    }
  }
  T* to = static_cast<T*>(out);
  for (int64_t r = row; r < row_end; ++r) {
    finish(epilogue, tile + (r - row) * kRowMajorTileColumns, to + r * n + column, columns);
  }
}

template <typename T>
void gemv_row_major(const float* x, const void* b, void* out, int64_t n, int64_t k, int64_t begin,
                    int64_t end, UnaryLoop epilogue) {
  // Columns whose sums stay in the first-level cache; four rows of b pass over them at a time.
  constexpr int64_t kColumns = 1024;
  constexpr int kAtOnce = 4;
  alignas(32) float sums[kColumns];
  T* to = static_cast<T*>(out);
  for (int64_t first = begin; first < end; first += kColumns) {
    const int64_t columns = end - first < kColumns ? end - first : kColumns;
    for (int64_t c = 0; c < columns; ++c) sums[c] = 0.0f;
    const T* rows = static_cast<const T*>(b) + first;
    int64_t i = 0;
    for (; i + kAtOnce <= k; i += kAtOnce, rows += kAtOnce * n) {
      const F8 factors[kAtOnce] = {splat(x[i]), splat(x[i + 1]), splat(x[i + 2]), splat(x[i + 3])};
      for_eights(columns, [&](int64_t c, auto load, auto store) {
        F8 held = load(sums + c);
        for (int j = 0; j < kAtOnce; ++j) held = fma(factors[j], load(rows + j * n + c), held);
        store(sums + c, held);
      });
    }
    for (; i < k; ++i, rows += n) {
      const F8 factor = splat(x[i]);
      for_eights(columns, [&](int64_t c, auto load, auto store) {
        store(sums + c, fma(factor, load(rows + c), load(sums + c)));
      });
    }
    finish(epilogue, sums, to + first, columns);
  }
}

template void pack_rows<float>(const void*, float*, int64_t, int64_t, int64_t, int64_t);
template void pack_rows<bf16>(const void*, float*, int64_t, int64_t, int64_t, int64_t);
template void gemm_row_major<float>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                    int64_t, int64_t, int64_t, UnaryLoop);
template void gemm_row_major<bf16>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                   int64_t, int64_t, int64_t, UnaryLoop);
template void gemv_row_major<float>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                    int64_t, UnaryLoop);
template void gemv_row_major<bf16>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                   int64_t, UnaryLoop);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
