// Softmax of rows.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

namespace {

template <typename T>
ONNX_IRON_INLINE float row_max(const T* x, int64_t width) {
  F8 most = splat(widen_one(*x));
  int64_t i = 0;
  for (; i + 8 <= width; i += 8) most = larger(most, load(x + i));
  float lanes[8];
  store(lanes, most);
  float result = lanes[0];
  for (int lane = 1; lane < 8; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  for (; i < width; ++i) {
    const float rest = widen_one(x[i]);
    result = rest > result ? rest : result;
  }
  return result;
}

}  // namespace

template <typename T>
void softmax(const void* x, void* out, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const F8 most = splat(row_max(from, width));
    // Exponentials are computed twice, which needs no float32 row to keep them in.
    const F8 total = splat(
        row_sum(width, [&](int64_t i, auto load) { return fast_exp(sub(load(from + i), most)); }));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      store(to + i, div(fast_exp(sub(load(from + i), most)), total));
    });
  }
}

template void softmax<float>(const void*, void*, int64_t, int64_t);
template void softmax<bf16>(const void*, void*, int64_t, int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
