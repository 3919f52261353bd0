// Chooses the loops that this CPU runs.
#include "kernels/cpu/loops.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cpu/bf16.h"
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
namespace avx512bf16 {
extern const Loops kLoops;
}
#endif

namespace {

#ifdef ONNX_IRON_HAS_AVX

// Whether two tables' loops give a product of bfloat16 the same bits. AVX-512-BF16's manuals differ
// in what they promise of the instruction's rounding; a result depends on all of it.
bool multiply_alike(const Loops& some, const Loops& others) {
  constexpr int64_t kRows = kGroupRows, kColumns = 16, kWidth = 64;
  std::vector<bf16> a(kRows * kWidth), b(kColumns * kWidth);
  uint32_t state = 1;
  for (std::vector<bf16>* matrix : {&a, &b}) {
    for (bf16& element : *matrix) {
      state = state * 1664525u + 1013904223u;
      // Any sign and fraction, and a power of two from -8 to 7.
      element = {static_cast<uint16_t>((state >> 16 & 0x87ffu) + (119u << 7))};
    }
  }
  const auto product = [&](const Loops& loops) {
    const TypedLoops& typed = loops.bfloat16;
    std::vector<float> packed(group_floats(kWidth));
    std::vector<bf16> out(kRows * kColumns);
    typed.pack(a.data(), packed.data(), kRows, kWidth, 0, 1);
    for (int64_t column = 0; column < kColumns; column += typed.tile_columns) {
      typed.gemm(packed.data(), b.data(), out.data(), kRows, kColumns, kWidth, 0, 1, column,
                 nullptr);
    }
    return out;
  };
  const std::vector<bf16> left = product(some), right = product(others);
  return std::memcmp(left.data(), right.data(), left.size() * sizeof(bf16)) == 0;
}

#endif

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
  const bool has_avx512bf16 = has_avx512 && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512bf16") &&
                              multiply_alike(avx512bf16::kLoops, avx512::kLoops);
  all.push_back({&avx512bf16::kLoops, has_avx512bf16});
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
