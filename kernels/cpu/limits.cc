// The limits of the instruction set that the loops use, for C too.
#include "kernels/cpu/limits.h"

#include <string_view>

#include "kernels/cpu/loops.h"

namespace onnx_iron {

namespace portable {
extern const Limits kLimits;
}

#ifdef ONNX_IRON_HAS_AVX
namespace avx2 {
extern const Limits kLimits;
}
namespace avx512 {
extern const Limits kLimits;
}
namespace avx512bf16 {
extern const Limits kLimits;
}
#endif

const Limits& limits() {
#ifdef ONNX_IRON_HAS_AVX
  for (const Limits* known : {&avx2::kLimits, &avx512::kLimits, &avx512bf16::kLimits}) {
    if (std::string_view(known->name) == loops().name) return *known;
  }
#endif
  return portable::kLimits;
}

}  // namespace onnx_iron

double onnx_iron_limit_products(bool bfloat16, int64_t steps) {
  const onnx_iron::Limits& of = onnx_iron::limits();
  return bfloat16 ? of.bfloat16(steps) : of.float32(steps);
}

uint64_t onnx_iron_limit_read(const void* data, size_t bytes) {
  return onnx_iron::limits().read(data, bytes);
}
