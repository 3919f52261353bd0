// Rows of a matrix in codes.
#include "kernels/cpu/vector/codes.h"

#include "kernels/cpu/vector/declarations.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

template <typename T>
void decode(const Codes& codes, int64_t row, int64_t k, void* out) {
  T* to = static_cast<T*>(out);
  for_decoded<T>(codes, row, k, 0, padded(k) / 8, [&](int64_t s, F8 eight) {
    if (8 * s + 8 <= k) {
      store(to + 8 * s, eight);
    } else {
      store_part(to + 8 * s, eight, k - 8 * s);
    }
  });
}

template void decode<float>(const Codes&, int64_t, int64_t, void*);
template void decode<bf16>(const Codes&, int64_t, int64_t, void*);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
