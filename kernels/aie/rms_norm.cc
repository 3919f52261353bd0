// RMSNorm in bfloat16, with and without a weight.
//
// n, the row's length, is a multiple of kLanes. The output may be the input. The quotient is
// rounded, then the product with the weight, as Llama and LFM2 do.
// Accuracy against the reference: 0 ulp measured, 1 ulp promised (2 with a weight), for the order
// of the sum is the core's.
#include "rms_norm.h"

using namespace onnx_iron::aie_kernels;

extern "C" {

void rms_norm_bf16(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n, float epsilon) {
  normalise(x, y, rows, n, epsilon,
            [](int32_t, const Halves<kLanes>& normalised) { return normalised; });
}

void rms_norm_weighted_bf16(const bfloat16* x, const bfloat16* weight, bfloat16* y, int32_t rows,
                            int32_t n, float epsilon) {
  normalise_weighted(x, weight, y, rows, n, epsilon);
}
}

ONNX_IRON_KERNEL(rms_norm_bf16)
ONNX_IRON_KERNEL(rms_norm_weighted_bf16)
