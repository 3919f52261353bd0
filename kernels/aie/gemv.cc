// GEMV in bfloat16 with float32 sums: some whole rows of the weight at a time, or a part of one.
//
// The weight's tile is (rows, depth), depth a multiple of kLanes; x is the whole vector, of which
// the tile meets the part from `first`. sums is the kernel's own between calls: a vector of partial
// sums for each row of a block, of which the tile has those from `row` on.
// Accuracy against the reference: 0 ulp measured; 2^-8 relative and 1e-6 absolute are promised, for
// the order of the sums is the core's.
#include "common.h"

namespace onnx_iron::aie_kernels {
namespace {

constexpr int32_t kTotals = 16;  // rows whose sums are rounded at once

// Rows at once, so that one's sum is in flight while another's is added to.
template <int32_t Rows>
void accumulate(const bfloat16* weight, const bfloat16* x, float* sums, int32_t depth) {
  Sums<kLanes> sum[Rows];
  for (int32_t r = 0; r < Rows; ++r) {
    sum[r] = Sums<kLanes>(aie::load_v<kLanes>(sums + r * kLanes));
  }
  for_vectors(depth, [&](int32_t i) {
    const Halves<kLanes> part = aie::load_v<kLanes>(x + i);
    for (int32_t r = 0; r < Rows; ++r) {
      sum[r] = aie::mac(sum[r], aie::load_v<kLanes>(weight + r * depth + i), part);
    }
  });
  for (int32_t r = 0; r < Rows; ++r) {
    aie::store_v(sums + r * kLanes, sum[r].template to_vector<float>());
  }
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void gemv_start_bf16(float* sums, int32_t rows) {
  for (int32_t r = 0; r < rows; ++r) aie::store_v(sums + r * kLanes, aie::zeros<float, kLanes>());
}

void gemv_bf16(const bfloat16* weight, const bfloat16* x, float* sums, int32_t rows, int32_t depth,
               int32_t row, int32_t first) {
  const NearestEven rounding;
  x += first;
  sums += row * kLanes;
  int32_t r = 0;
  for (; r + 4 <= rows; r += 4) accumulate<4>(weight + r * depth, x, sums + r * kLanes, depth);
  for (; r < rows; ++r) accumulate<1>(weight + r * depth, x, sums + r * kLanes, depth);
}

void gemv_finish_bf16(const float* sums, bfloat16* y, int32_t rows) {
  const NearestEven rounding;
  for (int32_t first = 0; first < rows; first += kTotals) {
    const int32_t count = rows - first < kTotals ? rows - first : kTotals;
    Floats<kTotals> totals = aie::zeros<float, kTotals>();
    for (int32_t r = 0; r < count; ++r) {
      totals.set(aie::reduce_add(aie::load_v<kLanes>(sums + (first + r) * kLanes)), r);
    }
    const Halves<kTotals> rounded = round<kTotals>(totals);
    // Past whole vectors by elements: a vector would reach past the tile, or start in between.
    if (count == kTotals) {
      aie::store_v(y + first, rounded);
    } else {
      for (int32_t r = 0; r < count; ++r) y[first + r] = rounded.get(r);
    }
  }
}
}

ONNX_IRON_KERNEL(gemv_start_bf16)
ONNX_IRON_KERNEL(gemv_bf16)
ONNX_IRON_KERNEL(gemv_finish_bf16)
