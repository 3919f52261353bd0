// LayerNorm of rows.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/rows.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

template <typename T>
void layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t rows,
                int64_t width, float epsilon) {
  const T* w = static_cast<const T*>(weight);
  const T* b = static_cast<const T*>(bias);
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    // The mean in two parts: rows that hardly vary are little more than the rounding of one.
    const double exact = row_total(from, width) / static_cast<double>(width);
    const float rounded = static_cast<float>(exact);
    const F8 mean = splat(rounded), rest = splat(static_cast<float>(exact - rounded));
    const float squares = row_sum(width, [&](int64_t i, auto load) {
      const F8 part = sub(sub(load(from + i), mean), rest);
      return mul(part, part);
    });
    const float variance = squares / static_cast<float>(width);
    const F8 factor = splat(1.0f / __builtin_sqrtf(variance + epsilon));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      F8 normed = mul(sub(sub(load(from + i), mean), rest), factor);
      if (w != nullptr) normed = mul(normed, load(w + i));
      if (b != nullptr) normed = add(normed, load(b + i));
      store(to + i, normed);
    });
  }
}

template void layer_norm<float>(const void*, const void*, const void*, void*, int64_t, int64_t,
                                float);
template void layer_norm<bf16>(const void*, const void*, const void*, void*, int64_t, int64_t,
                               float);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
