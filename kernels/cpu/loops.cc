// Chooses the loops that this CPU runs.
#include "kernels/cpu/loops.h"

#include <cstdlib>
#include <cstring>

namespace onnx_iron {

namespace portable {
extern const Loops kLoops;
}

#ifdef ONNX_IRON_HAS_AVX2
namespace avx2 {
extern const Loops kLoops;
}

static bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

const Loops& loops() {
  static const Loops& chosen = []() -> const Loops& {
#ifdef ONNX_IRON_HAS_AVX2
    const char* wanted = std::getenv("ONNX_IRON_CPU");
    const bool forced = wanted != nullptr && std::strcmp(wanted, "portable") == 0;
    if (!forced && has_avx2()) return avx2::kLoops;
#endif
    return portable::kLoops;
  }();
  return chosen;
}

}  // namespace onnx_iron
