// Chooses the loops that this CPU runs.
#include "kernels/cpu/loops.h"

#include <cstdlib>
#include <vector>

#include "kernels/cpu/checks.h"

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

struct Candidate {
  const Loops* loops;
  bool runs_here;
};

// From the best on.
std::vector<Candidate> candidates() {
  std::vector<Candidate> all;
#ifdef ONNX_IRON_HAS_AVX
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  all.push_back({&avx512::kLoops, has_avx512});
  all.push_back({&avx2::kLoops, has_avx2});
#endif
  all.push_back({&portable::kLoops, true});
  return all;
}

const Loops& choose() {
  const char* named = std::getenv("ONNX_IRON_CPU");
  const bool any = named == nullptr || *named == '\0';
  std::string expected;
  for (const auto& [loops, runs_here] : candidates()) {
    if (runs_here && (any || std::string(named) == loops->name)) return *loops;
    if (runs_here) expected += (expected.empty() ? "" : ", ") + std::string(loops->name);
  }
  throw std::runtime_error(text("the environment variable ONNX_IRON_CPU is '", named,
                                "', expected one of what this CPU runs: ", expected));
}

}  // namespace

const Loops& loops() {
  static const Loops& chosen = choose();
  return chosen;
}

const Loops& portable_loops() { return portable::kLoops; }

std::vector<const UnaryFunction*> unary_functions(const Loops& loops) {
  std::vector<const UnaryFunction*> all;
  for (size_t file = 0; file < loops.function_files; ++file) {
    const FunctionFile& held = *loops.functions[file];
    for (size_t i = 0; i < held.unary_count; ++i) all.push_back(&held.unary[i]);
  }
  return all;
}

std::vector<const BinaryFunction*> binary_functions(const Loops& loops) {
  std::vector<const BinaryFunction*> all;
  for (size_t file = 0; file < loops.function_files; ++file) {
    const FunctionFile& held = *loops.functions[file];
    for (size_t i = 0; i < held.binary_count; ++i) all.push_back(&held.binary[i]);
  }
  return all;
}

}  // namespace onnx_iron
