// Softmax over rows in bfloat16.
//
// n, the row's length, is a multiple of kLanes. The output may be the input.
// A row with NaN, and one of nothing but minus infinity, is NaN, whatever the core's maximum makes
// of NaN. Accuracy against the reference: 1 ulp.
#include "functions.h"

namespace onnx_iron::aie_kernels {
namespace {

void softmax_row(const bfloat16* x, bfloat16* y, int32_t n) {
  Halves<kLanes> most = aie::load_v<kLanes>(x);
  for_vectors(n, [&](int32_t i) { most = aie::max(most, aie::load_v<kLanes>(x + i)); });
  const Floats<kLanes> highest =
      aie::broadcast<float, kLanes>(static_cast<float>(aie::reduce_max(most)));
  const auto exponential = [&](int32_t i) {
    return decay<kLanes>(aie::sub(highest, widen<kLanes>(aie::load_v<kLanes>(x + i))));
  };
  Sums<kLanes> sum = aie::zeros<accfloat, kLanes>();
  for_vectors(n, [&](int32_t i) { sum = aie::add(sum, exponential(i)); });
  const Floats<kLanes> scale =
      reciprocal<kLanes>(aie::broadcast<float, kLanes>(aie::reduce_add(sum.to_vector<float>())));
  for_vectors(n, [&](int32_t i) {
    aie::store_v(y + i, round<kLanes>(multiply<kLanes>(exponential(i), scale)));
  });
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void softmax_bf16(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n) {
  const NearestEven rounding;
  for (int32_t r = 0; r < rows; ++r) softmax_row(x + r * n, y + r * n, n);
}
}

ONNX_IRON_KERNEL(softmax_bf16)
