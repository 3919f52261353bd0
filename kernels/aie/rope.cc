// RoPE in bfloat16: rows turned by a row of angles (cos0, sin0, cos1, sin1, ...).
//
// head_dim is a multiple of 32 on both targets: sixteen frequencies are turned at once. `rows`
// consecutive rows share the row of angles. The output may be the input. Products are exact, their
// sum is rounded to float32, then to bfloat16.
// Accuracy against the reference: 0 ulp.
#include "rope.h"

using namespace onnx_iron::aie_kernels;

extern "C" {

void rope_bf16(const bfloat16* x, const bfloat16* angles, bfloat16* y, int32_t rows,
               int32_t head_dim) {
  of_rows(x, angles, y, rows, head_dim, turn_halves);
}

void rope_interleaved_bf16(const bfloat16* x, const bfloat16* angles, bfloat16* y, int32_t rows,
                           int32_t head_dim) {
  of_rows(x, angles, y, rows, head_dim, turn_pairs);
}
}

ONNX_IRON_KERNEL(rope_bf16)
ONNX_IRON_KERNEL(rope_interleaved_bf16)
