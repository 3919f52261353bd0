// Chooses the loops that this CPU runs.
#include "kernels/cpu/loops.h"

#include <cstdlib>
#include <cstring>

namespace onnx_iron {

namespace portable {
extern const Loops kLoops;
}

#ifdef ONNX_IRON_HAS_AVX
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}
#endif

namespace {

// The best that this CPU has, up to the one that ONNX_IRON_CPU names.
const Loops& choose() {
#ifdef ONNX_IRON_HAS_AVX
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const char* most = std::getenv("ONNX_IRON_CPU");
  const auto is = [most](const char* path) { return most != nullptr && !std::strcmp(most, path); };
  if (has_avx512 && !is("avx2") && !is("portable")) return avx512::kLoops;
  if (has_avx2 && !is("portable")) return avx2::kLoops;
#endif
  return portable::kLoops;
}

}  // namespace

const Loops& loops() {
  static const Loops& chosen = choose();
  return chosen;
}

}  // namespace onnx_iron
