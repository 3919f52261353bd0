// LayerNorm in bfloat16, with and without a weight.
//
// n, the row's length, is a multiple of kLanes. The output may be the input.
// Accuracy against the reference: 1 ulp; 1e-6 where the mean cancels all but 1e-5 of the result.
#include "common.h"

namespace onnx_iron::aie_kernels {
namespace {

// finish(i, normalised vector) gives the float32 numbers that are rounded and stored.
template <typename Finish>
void normalise(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n, float epsilon,
               Finish&& finish) {
  const NearestEven rounding;
  for (int32_t r = 0; r < rows; ++r, x += n, y += n) {
    Sums<kLanes> sum = aie::zeros<accfloat, kLanes>();
    for_vectors(n, [&](int32_t i) { sum = aie::add(sum, aie::load_v<kLanes>(x + i)); });
    const Floats<kLanes> mean = aie::broadcast<float, kLanes>(
        aie::reduce_add(sum.to_vector<float>()) / static_cast<float>(n));
    const auto centred = [&](int32_t i) {
      return aie::sub(widen<kLanes>(aie::load_v<kLanes>(x + i)), mean);
    };
    Sums<kLanes> squares = aie::zeros<accfloat, kLanes>();
    for_vectors(n, [&](int32_t i) { squares = aie::mac_square(squares, centred(i)); });
    const float variance = aie::reduce_add(squares.to_vector<float>()) / static_cast<float>(n);
    const float scale = reciprocal_root(variance + epsilon);
    for_vectors(n, [&](int32_t i) {
      aie::store_v(y + i, round<kLanes>(finish(i, multiply<kLanes>(centred(i), scale))));
    });
  }
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void layer_norm_bf16(const bfloat16* x, bfloat16* y, int32_t rows, int32_t n, float epsilon) {
  normalise(x, y, rows, n, epsilon,
            [](int32_t, const Floats<kLanes>& normalised) { return normalised; });
}

void layer_norm_weighted_bf16(const bfloat16* x, const bfloat16* weight, bfloat16* y, int32_t rows,
                              int32_t n, float epsilon) {
  normalise(x, y, rows, n, epsilon, [&](int32_t i, const Floats<kLanes>& normalised) {
    return multiply<kLanes>(normalised, widen<kLanes>(aie::load_v<kLanes>(weight + i)));
  });
}
}

ONNX_IRON_KERNEL(layer_norm_bf16)
ONNX_IRON_KERNEL(layer_norm_weighted_bf16)
