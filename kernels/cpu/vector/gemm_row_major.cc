// a (M, K) by b (K, N). Each output is one lane's sum in ascending k, so that a row's bits do not
// depend on the other rows.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/epilogue.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

constexpr int kRows = 6;
constexpr int kVectors = kRowMajorTileColumns / 8;
// Rows of b in a block of 16 KB.
constexpr int64_t kBlockRows = 256;

// sums[r] += a[r] * b over `steps` rows of the block b.
template <int rows>
ONNX_IRON_INLINE void multiply(const float* a, int64_t stride, const float* b, int64_t steps,
                               float* sums) {
  F8 held[rows][kVectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) held[r][v] = load(sums + r * kRowMajorTileColumns + 8 * v);
  }
  for (int64_t k = 0; k < steps; ++k, b += kRowMajorTileColumns) {
    const F8 low = load(b), high = load(b + 8);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const F8 same = splat(a[r * stride + k]);
      held[r][0] = fma(same, low, held[r][0]);
      held[r][1] = fma(same, high, held[r][1]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(sums + r * kRowMajorTileColumns + 8 * v, held[r][v]);
  }
}

// Fewer rows than kRows.
inline void multiply_rest(int64_t rows, const float* a, int64_t stride, const float* b,
                          int64_t steps, float* sums) {
  static_assert(kRows == 6);
  switch (rows) {
    case 1:
      return multiply<1>(a, stride, b, steps, sums);
    case 2:
      return multiply<2>(a, stride, b, steps, sums);
    case 3:
      return multiply<3>(a, stride, b, steps, sums);
    case 4:
      return multiply<4>(a, stride, b, steps, sums);
    case 5:
      return multiply<5>(a, stride, b, steps, sums);
  }
}

}  // namespace

template <typename T>
void gemm_row_major(const float* a, const void* b, void* out, int64_t n, int64_t k, int64_t row,
                    int64_t row_end, int64_t column, UnaryLoop epilogue) {
  alignas(32) float block[kBlockRows * kRowMajorTileColumns];
  alignas(32) float tile[kRowMajorTileRows * kRowMajorTileColumns] = {};
  const int64_t columns =
      n - column < kRowMajorTileColumns ? n - column : int64_t{kRowMajorTileColumns};
  for (int64_t from = 0; from < k; from += kBlockRows) {
    const int64_t steps = k - from < kBlockRows ? k - from : kBlockRows;
    const T* rows = static_cast<const T*>(b) + from * n + column;
    for (int64_t s = 0; s < steps; ++s) {
      float* at = block + s * kRowMajorTileColumns;
      if (columns == kRowMajorTileColumns) {
        store(at, load(rows + s * n));
        store(at + 8, load(rows + s * n + 8));
      } else {
        store(at, load_part(rows + s * n, columns));
        store(at + 8, columns > 8 ? load_part(rows + s * n + 8, columns - 8) : zero());
      }
    }
    int64_t r = row;
    float* sums = tile;
    for (; r + kRows <= row_end; r += kRows, sums += kRows * kRowMajorTileColumns) {
      multiply<kRows>(a + r * k + from, k, block, steps, sums);
    }
    multiply_rest(row_end - r, a + r * k + from, k, block, steps, sums);
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
  constexpr int kTogether = 4;
  alignas(32) float sums[kColumns];
  T* to = static_cast<T*>(out);
  for (int64_t first = begin; first < end; first += kColumns) {
    const int64_t columns = end - first < kColumns ? end - first : kColumns;
    for (int64_t c = 0; c < columns; ++c) sums[c] = 0.0f;
    const T* rows = static_cast<const T*>(b) + first;
    int64_t i = 0;
    for (; i + kTogether <= k; i += kTogether, rows += kTogether * n) {
      const F8 factors[kTogether] = {splat(x[i]), splat(x[i + 1]), splat(x[i + 2]),
                                     splat(x[i + 3])};
      for_eights(columns, [&](int64_t c, auto load, auto store) {
        F8 held = load(sums + c);
        for (int j = 0; j < kTogether; ++j) held = fma(factors[j], load(rows + j * n + c), held);
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

template void gemm_row_major<float>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                    int64_t, int64_t, UnaryLoop);
template void gemm_row_major<bf16>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                   int64_t, int64_t, UnaryLoop);
template void gemv_row_major<float>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                    int64_t, UnaryLoop);
template void gemv_row_major<bf16>(const float*, const void*, void*, int64_t, int64_t, int64_t,
                                   int64_t, UnaryLoop);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
