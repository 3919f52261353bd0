// One bfloat16, to float32 and back.
#pragma once

#include <cstdint>
#include <cstring>

namespace onnx_iron {

struct bf16 {
  uint16_t bits;
};

// Always inlined: sources for several instruction sets include this, and must not share a copy.
#define ONNX_IRON_INLINE static inline __attribute__((always_inline))

ONNX_IRON_INLINE float widen_one(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

ONNX_IRON_INLINE float widen_one(float x) { return x; }

// Nearest, ties to even; a NaN becomes the quiet one of its sign, as in ml_dtypes.
ONNX_IRON_INLINE bf16 narrow_to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u)};
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <typename T>
ONNX_IRON_INLINE T narrow_one(float x) {
  if constexpr (sizeof(T) == 2) {
    return narrow_to_bf16(x);
  } else {
    return x;
  }
}

}  // namespace onnx_iron
