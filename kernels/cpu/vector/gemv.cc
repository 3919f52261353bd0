// out[n] = w[n] . x. Each output has one accumulator of eight lanes, element k in lane k % 8, as in
// gemm.cc: both give the same bits.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/functions.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Rows of w at a time: enough accumulators to hide the latency of fma.
constexpr int kRows = 8;

template <int rows, typename T>
ONNX_IRON_INLINE void dot_rows(const T* w, const float* x, int64_t k, float* out) {
  F8 sums[rows];
  for (F8& one : sums) one = zero();
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    const F8 part = load(x + i);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) sums[r] = fma(load(w + r * k + i), part, sums[r]);
  }
  if (i < k) {
    const F8 part = load(x + i);
    for (int r = 0; r < rows; ++r) sums[r] = fma(load_part(w + r * k + i, k - i), part, sums[r]);
  }
  if constexpr (rows == 1) {
    *out = sum(sums[0]);
  } else {
    for (int r = 0; r < rows; r += 4) sum_four(sums + r, out + r);
  }
}

}  // namespace

template <typename T>
void gemv(const void* w, const float* x, void* out, int64_t k, int64_t begin, int64_t end,
          UnaryOp epilogue) {
  const T* weight = static_cast<const T*>(w);
  T* to = static_cast<T*>(out);
  float sums[kRows];
  int64_t row = begin;
  for (; row + kRows <= end; row += kRows) {
    dot_rows<kRows>(weight + row * k, x, k, sums);
    finish(epilogue, sums, to + row, kRows);
  }
  for (; row < end; ++row) {
    dot_rows<1>(weight + row * k, x, k, sums);
    finish(epilogue, sums, to + row, 1);
  }
}

template void gemv<float>(const void*, const float*, void*, int64_t, int64_t, int64_t, UnaryOp);
template void gemv<bf16>(const void*, const float*, void*, int64_t, int64_t, int64_t, UnaryOp);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
