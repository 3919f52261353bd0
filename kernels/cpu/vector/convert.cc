// The dtype to float32 and back.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/wide.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

template <typename T>
void widen(const void* x, float* out, int64_t n) {
  const T* from = static_cast<const T*>(x);
  for_wides(n, [&](int64_t i, auto load, auto store) { store(out + i, load(from + i)); });
}

template <typename T>
void narrow(const float* x, void* out, int64_t n) {
  T* to = static_cast<T*>(out);
  for_wides(n, [&](int64_t i, auto load, auto store) { store(to + i, load(x + i)); });
}

template void widen<float>(const void*, float*, int64_t);
template void widen<bf16>(const void*, float*, int64_t);
template void narrow<float>(const float*, void*, int64_t);
template void narrow<bf16>(const float*, void*, int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
