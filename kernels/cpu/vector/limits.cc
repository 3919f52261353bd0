// What this instruction set can do at the most: products and sums in registers, reading memory.
#include "kernels/cpu/limits.h"

#include "kernels/cpu/vector/simd.h"

#define ONNX_IRON_TEXT_OF(path) #path
#define ONNX_IRON_TEXT(path) ONNX_IRON_TEXT_OF(path)

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Sums that do not wait for each other hide an instruction's latency; all of them fit into
// registers.
#if defined(__AVX2__)
constexpr int kSums = 12;
#else
constexpr int kSums = 4;
#endif

// What was computed must seem to be needed.
volatile float kept;

#if defined(__AVX512F__)

using Lanes = __m512;
constexpr int kLanes = 16;
ONNX_IRON_INLINE Lanes all(float x) { return _mm512_set1_ps(x); }
ONNX_IRON_INLINE Lanes step(Lanes sum, Lanes x, Lanes y) { return _mm512_fmadd_ps(sum, x, y); }
ONNX_IRON_INLINE float first(Lanes x) { return _mm512_cvtss_f32(x); }

#else

using Lanes = F8;
constexpr int kLanes = 8;
ONNX_IRON_INLINE Lanes all(float x) { return splat(x); }
ONNX_IRON_INLINE Lanes step(Lanes sum, Lanes x, Lanes y) { return fma(sum, x, y); }
ONNX_IRON_INLINE float first(Lanes x) {
  float lanes[kLanes];
  store(lanes, x);
  return lanes[0];
}

#endif

double float32(int64_t steps) {
  const Lanes x = all(0.999f), y = all(1e-3f);
  Lanes sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = all(static_cast<float>(i));
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = step(sums[i], x, y);
  }
  for (int i = 0; i < kSums; ++i) kept = first(sums[i]);
  return 2.0 * kLanes * kSums * static_cast<double>(steps);
}

#if defined(__AVX512BF16__)

double bfloat16(int64_t steps) {
  const __m512bh x = _mm512_cvtne2ps_pbh(all(1e-3f), all(1e-3f)), y = x;
  Lanes sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = all(static_cast<float>(i));
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, y);
  }
  for (int i = 0; i < kSums; ++i) kept = first(sums[i]);
  return 4.0 * kLanes * kSums * static_cast<double>(steps);
}

#else

double bfloat16(int64_t steps) { return float32(steps); }

#endif

// Four streams, each asked for ahead of time.
uint64_t read(const void* data, size_t bytes) {
  constexpr size_t kStreams = 4, kLine = 8, kAhead = 128;
  const uint64_t* from = static_cast<const uint64_t*>(data);
  const size_t length = bytes / sizeof(uint64_t) / kStreams / kLine * kLine;
  uint64_t sums[kStreams][kLine] = {};
  for (size_t at = 0; at < length; at += kLine) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* line = from + stream * length + at;
      __builtin_prefetch(line + kAhead);
      for (size_t i = 0; i < kLine; ++i) sums[stream][i] += line[i];
    }
  }
  uint64_t total = 0;
  for (const auto& stream : sums) {
    for (uint64_t sum : stream) total += sum;
  }
  return total;
}

}  // namespace

extern const Limits kLimits;
constinit const Limits kLimits = {ONNX_IRON_TEXT(ONNX_IRON_PATH), float32, bfloat16, read};

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
