// Sums and means of rows.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/rows.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

template <typename T>
void reduce(const void* x, void* out, int64_t rows, int64_t width, bool mean) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    const float total = row_sum(width, [&](int64_t i, auto load) { return load(from + i); });
    static_cast<T*>(out)[row] = narrow_one<T>(mean ? total / static_cast<float>(width) : total);
  }
}

template void reduce<float>(const void*, void*, int64_t, int64_t, bool);
template void reduce<bf16>(const void*, void*, int64_t, int64_t, bool);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
