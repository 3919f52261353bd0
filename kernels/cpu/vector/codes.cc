// Rows of a matrix in codes.
#include "kernels/cpu/vector/codes.h"

#include "kernels/cpu/vector/declarations.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

template <typename T>
void decode(const Codes& codes, int64_t row, int64_t k, void* out) {
  T* to = static_cast<T*>(out);
  const auto keep = [&](int64_t s, F8 eight) __attribute__((always_inline)) {
    if (8 * s + 8 <= k) {
      store(to + 8 * s, eight);
    } else {
      store_part(to + 8 * s, eight, k - 8 * s);
    }
  };
  if (codes.bits == 4) {
    for_decoded<T, 4>(codes, row, k, 0, padded(k) / 8, keep);
  } else {
    for_decoded<T, 8>(codes, row, k, 0, padded(k) / 8, keep);
  }
}

template void decode<float>(const Codes&, int64_t, int64_t, void*);
template void decode<bf16>(const Codes&, int64_t, int64_t, void*);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
