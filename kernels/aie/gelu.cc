// GELU, exact and by tanh, in bfloat16.
//
// n is a multiple of kLanes. The output may be the input.
// Accuracy over every bfloat16, NaN and infinities included: 1 ulp; results below 2^-118 may be
// zero.
#include "flat.h"
#include "functions.h"

using namespace onnx_iron::aie_kernels;

extern "C" {

void gelu_bf16(const bfloat16* x, bfloat16* y, int32_t n) { of_array(x, y, n, gelu<kLanes>); }

void gelu_tanh_bf16(const bfloat16* x, bfloat16* y, int32_t n) {
  of_array(x, y, n, gelu_tanh<kLanes>);
}
}

ONNX_IRON_KERNEL(gelu_bf16)
ONNX_IRON_KERNEL(gelu_tanh_bf16)
