// RMSNorm of rows.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/rows.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

template <typename T>
void rms_norm(const void* x, const void* weight, void* out, int64_t rows, int64_t width,
              float epsilon) {
  const T* w = static_cast<const T*>(weight);
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const float squares = row_sum(width, [&](int64_t i, auto load) {
      const F8 part = load(from + i);
      return mul(part, part);
    });
    const float mean = squares / static_cast<float>(width);
    const F8 factor = splat(1.0f / __builtin_sqrtf(mean + epsilon));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      F8 normed = mul(load(from + i), factor);
      if (w == nullptr) return store(to + i, normed);
      // The norm is rounded before it meets the weight.
      if constexpr (sizeof(T) == 2) normed = round_to_bf16(normed);
      store(to + i, mul(normed, load(w + i)));
    });
  }
}

template void rms_norm<float>(const void*, const void*, void*, int64_t, int64_t, float);
template void rms_norm<bf16>(const void*, const void*, void*, int64_t, int64_t, float);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
