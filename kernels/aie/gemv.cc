// GEMV in bfloat16 with float32 sums: sixteen rows of the weight at a time, over tiles of K.
//
// The weight's tile is (16, k), k a multiple of 64; x is the whole vector, of which the tile meets
// the part from `first`. sums is the kernel's own between calls: a vector of partial sums for each
// row.
// Accuracy against the reference: 0 ulp measured; 2^-8 relative and 1e-6 absolute are promised, for
// the order of the sums is the core's.
#include "common.h"

namespace onnx_iron::aie_kernels {
namespace {

constexpr int32_t kRows = 16;

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void gemv_start_bf16(float* sums) {
  for (int32_t r = 0; r < kRows; ++r) aie::store_v(sums + r * kLanes, aie::zeros<float, kLanes>());
}

void gemv_bf16(const bfloat16* weight, const bfloat16* x, float* sums, int32_t k, int32_t first) {
  const NearestEven rounding;
  for (int32_t r = 0; r < kRows; ++r) {
    Sums<kLanes> sum(aie::load_v<kLanes>(sums + r * kLanes));
    for_vectors(k, [&](int32_t i) {
      sum = aie::mac(sum, aie::load_v<kLanes>(weight + r * k + i),
                     aie::load_v<kLanes>(x + first + i));
    });
    aie::store_v(sums + r * kLanes, sum.to_vector<float>());
  }
}

void gemv_finish_bf16(const float* sums, bfloat16* y) {
  const NearestEven rounding;
  Floats<kRows> totals = aie::zeros<float, kRows>();
  for (int32_t r = 0; r < kRows; ++r) {
    totals.set(aie::reduce_add(aie::load_v<kLanes>(sums + r * kLanes)), r);
  }
  aie::store_v(y, round<kRows>(totals));
}
}

ONNX_IRON_KERNEL(gemv_start_bf16)
ONNX_IRON_KERNEL(gemv_bf16)
ONNX_IRON_KERNEL(gemv_finish_bf16)
