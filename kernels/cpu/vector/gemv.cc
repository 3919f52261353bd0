// out[n] = w[n] . x. Each output has one accumulator of eight lanes, element k in lane k % 8, as in
// gemm.cc: both give the same bits.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/epilogue.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Rows of w at a time: as many accumulators as hide the latency of fma.
constexpr int kRows = 4;
// How far ahead of its use the weight is asked for. The hardware's own prefetching stops at the end
// of each short row.
constexpr int64_t kAheadBytes = 9216;
constexpr int64_t kLineBytes = 64;

template <int rows, typename T>
ONNX_IRON_INLINE void dot_rows(const T* w, const float* x, int64_t k, int64_t ahead, float* out) {
  constexpr int64_t kUnroll = 4;
  F8 sums[rows];
  for (F8& one : sums) one = zero();
  const auto step = [&](int64_t i) __attribute__((always_inline)) {
    const F8 part = load(x + i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sums[r] = fma(load(w + r * k + i), part, sums[r]);
  };
  int64_t i = 0;
  for (; i + 8 * kUnroll <= k; i += 8 * kUnroll) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      // It may be past the end, which a prefetch may be.
      const char* next = reinterpret_cast<const char*>(w + (r + ahead) * k + i);
      for (size_t line = 0; line < 8 * kUnroll * sizeof(T); line += kLineBytes) {
        __builtin_prefetch(next + line);
      }
    }
#pragma GCC unroll 4
    for (int64_t u = 0; u < kUnroll; ++u) step(i + 8 * u);
  }
  for (; i + 8 <= k; i += 8) step(i);
  if (i < k) {
    const F8 part = load(x + i);
    for (int r = 0; r < rows; ++r) sums[r] = fma(load_part(w + r * k + i, k - i), part, sums[r]);
  }
  static_assert(rows == 1 || rows == 4);
  if constexpr (rows == 1) {
    *out = sum(sums[0]);
  } else {
    sum_four(sums, out);
  }
}

}  // namespace

template <typename T>
void gemv(const void* w, const float* x, void* out, int64_t k, int64_t begin, int64_t end,
          UnaryLoop epilogue) {
  const T* weight = static_cast<const T*>(w);
  T* to = static_cast<T*>(out);
  const int64_t row_bytes = (k == 0 ? 1 : k) * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = kAheadBytes / row_bytes < kRows ? kRows : kAheadBytes / row_bytes;
  float sums[kRows];
  int64_t row = begin;
  for (; row + kRows <= end; row += kRows) {
    dot_rows<kRows>(weight + row * k, x, k, ahead, sums);
    finish(epilogue, sums, to + row, kRows);
  }
  for (; row < end; ++row) {
    dot_rows<1>(weight + row * k, x, k, ahead, sums);
    finish(epilogue, sums, to + row, 1);
  }
}

template void gemv<float>(const void*, const float*, void*, int64_t, int64_t, int64_t, UnaryLoop);
template void gemv<bf16>(const void*, const float*, void*, int64_t, int64_t, int64_t, UnaryLoop);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
