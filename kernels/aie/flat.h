// A function of one float32 vector over an array of bfloat16.
#pragma once

#include "common.h"

namespace onnx_iron::aie_kernels {

template <typename F>
void of_array(const bfloat16* x, bfloat16* y, int32_t n, F&& function) {
  const NearestEven rounding;
  for_vectors(n, [&](int32_t i) {
    aie::store_v(y + i, round<kLanes>(function(widen<kLanes>(aie::load_v<kLanes>(x + i)))));
  });
}

}  // namespace onnx_iron::aie_kernels
