// RMSNorm in bfloat16, with and without a weight.
//
// n, the row's length, is a multiple of kLanes. The output may be the input. The quotient is
// rounded, then the product with the weight, as Llama and LFM2 do.
// Accuracy against the reference: 0 ulp measured, 1 ulp promised (2 with a weight), for the order
// of the sum is the core's.
#include "common.h"

namespace onnx_iron::aie_kernels {
namespace {

// finish(i, normalised vector) gives what is stored.
template <typename Finish>
void normalise(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n, float epsilon,
               Finish&& finish) {
  const NearestEven rounding;
  for (int32_t r = 0; r < rows; ++r, x += n, y += n) {
    Sums<kLanes> squares = aie::zeros<accfloat, kLanes>();
    for_vectors(n,
                [&](int32_t i) { squares = aie::mac_square(squares, aie::load_v<kLanes>(x + i)); });
    const float mean = aie::reduce_add(squares.to_vector<float>()) / static_cast<float>(n);
    const Factor<kLanes> scale(reciprocal_root(mean + epsilon));
    for_vectors(n, [&](int32_t i) {
      const Halves<kLanes> scaled = (scale * aie::load_v<kLanes>(x + i)).to_vector<bfloat16>();
      aie::store_v(y + i, finish(i, scaled));
    });
  }
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void rms_norm_bf16(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n, float epsilon) {
  normalise(x, y, rows, n, epsilon,
            [](int32_t, const Halves<kLanes>& normalised) { return normalised; });
}

void rms_norm_weighted_bf16(const bfloat16* x, const bfloat16* weight, bfloat16* y, int32_t rows,
                            int32_t n, float epsilon) {
  normalise(x, y, rows, n, epsilon, [&](int32_t i, const Halves<kLanes>& normalised) {
    return aie::mul(normalised, aie::load_v<kLanes>(weight + i)).to_vector<bfloat16>();
  });
}
}

ONNX_IRON_KERNEL(rms_norm_bf16)
ONNX_IRON_KERNEL(rms_norm_weighted_bf16)
