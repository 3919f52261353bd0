// a (M, K) by b (K, N). Each output is one lane's sum in ascending k, so that a row's bits do not
// depend on the other rows.
#include <cstring>

#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/epilogue.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Vectors of columns; with two of them a row, as many rows as the registers hold.
#if defined(__AVX512F__)

struct Wide {
  __m512 v;
};
constexpr int kLanes = 16, kRows = 12;
ONNX_IRON_INLINE Wide wide_at(const float* p) { return {_mm512_loadu_ps(p)}; }
ONNX_IRON_INLINE void keep(float* p, Wide x) { _mm512_storeu_ps(p, x.v); }
ONNX_IRON_INLINE Wide everywhere(float x) { return {_mm512_set1_ps(x)}; }
ONNX_IRON_INLINE Wide fma(Wide a, Wide b, Wide c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

#else

using Wide = F8;
constexpr int kLanes = 8, kRows = 6;
ONNX_IRON_INLINE Wide wide_at(const float* p) { return load(p); }
ONNX_IRON_INLINE void keep(float* p, Wide x) { store(p, x); }
ONNX_IRON_INLINE Wide everywhere(float x) { return splat(x); }

#endif

constexpr int kVectors = 2;
constexpr int kTogether = kVectors * kLanes;
static_assert(kRowMajorTileColumns % kTogether == 0);
// Rows of b in a block of 16 KB.
constexpr int64_t kBlockRows = 128;

// sums[r] += a[r] * b over `steps` rows of the block b, kTogether columns of them.
template <int rows>
ONNX_IRON_INLINE void multiply(const float* a, int64_t stride, const float* b, int64_t steps,
                               float* sums) {
  Wide held[rows][kVectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      held[r][v] = wide_at(sums + r * kRowMajorTileColumns + v * kLanes);
    }
  }
  for (int64_t k = 0; k < steps; ++k, b += kRowMajorTileColumns) {
    const Wide low = wide_at(b), high = wide_at(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const Wide same = everywhere(a[r * stride + k]);
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

// Any number of rows: as many as fit at once, then what is left in fewer and fewer.
inline void multiply_rows(int64_t rows, const float* a, int64_t stride, const float* b,
                          int64_t steps, float* sums) {
  const auto pass = [&]<int at_once>() {
    for (; rows >= at_once; rows -= at_once) {
      for (int64_t at = 0; at < kRowMajorTileColumns; at += kTogether) {
        multiply<at_once>(a, stride, b + at, steps, sums + at);
      }
      a += at_once * stride;
      sums += at_once * kRowMajorTileColumns;
    }
  };
  pass.template operator()<kRows>();
  if constexpr (kRows > 6) pass.template operator()<6>();
  pass.template operator()<3>();
  pass.template operator()<2>();
  pass.template operator()<1>();
}

}  // namespace

template <typename T>
void gemm_row_major(const float* a, const void* b, void* out, int64_t n, int64_t k, int64_t row,
                    int64_t row_end, int64_t column, UnaryLoop epilogue) {
  alignas(64) float block[kBlockRows * kRowMajorTileColumns];
  alignas(64) float tile[kRowMajorTileRows * kRowMajorTileColumns];
  std::memset(tile, 0, (row_end - row) * kRowMajorTileColumns * sizeof(float));
  const int64_t columns =
      n - column < kRowMajorTileColumns ? n - column : int64_t{kRowMajorTileColumns};
  for (int64_t from = 0; from < k; from += kBlockRows) {
    const int64_t steps = k - from < kBlockRows ? k - from : kBlockRows;
    const T* rows = static_cast<const T*>(b) + from * n + column;
    for (int64_t s = 0; s < steps; ++s) {
      float* at = block + s * kRowMajorTileColumns;
      for (int64_t c = 0; c < kRowMajorTileColumns; c += 8) {
        const T* eight = rows + s * n + c;
        if (c + 8 <= columns) {
          store(at + c, load(eight));
        } else {
          store(at + c, c < columns ? load_part(eight, columns - c) : zero());
        }
      }
    }
    multiply_rows(row_end - row, a + row * k + from, k, block, steps, tile);
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
