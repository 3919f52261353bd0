// SiLU and GELU in bfloat16.
//
// n is a multiple of kLanes. The output may be the input.
// Accuracy over every bfloat16, NaN and infinities included: 1 ulp; results below 2^-118 may be
// zero.
#include "functions.h"

namespace onnx_iron::aie_kernels {
namespace {

template <typename F>
void of_array(const bfloat16* x, bfloat16* y, int32_t n, F&& function) {
  const NearestEven rounding;
  for_vectors(n, [&](int32_t i) {
    aie::store_v(y + i, round<kLanes>(function(widen<kLanes>(aie::load_v<kLanes>(x + i)))));
  });
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void silu_bf16(const bfloat16* x, bfloat16* y, int32_t n) { of_array(x, y, n, silu<kLanes>); }

void gelu_bf16(const bfloat16* x, bfloat16* y, int32_t n) { of_array(x, y, n, gelu<kLanes>); }

void gelu_tanh_bf16(const bfloat16* x, bfloat16* y, int32_t n) {
  of_array(x, y, n, gelu_tanh<kLanes>);
}
}

ONNX_IRON_KERNEL(silu_bf16)
ONNX_IRON_KERNEL(gelu_bf16)
ONNX_IRON_KERNEL(gelu_tanh_bf16)
