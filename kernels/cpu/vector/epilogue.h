// What follows a matrix product.
#pragma once

#include "kernels/cpu/functions.h"
#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

// Float32 sums, through the epilogue if there is one, rounded to n elements of T. x is overwritten.
template <typename T>
inline void finish(UnaryLoop epilogue, float* x, T* out, int64_t n) {
  if (epilogue != nullptr) epilogue(x, x, n);
  for_eights(n, [&](int64_t i, auto load, auto store) { store(out + i, load(x + i)); });
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
