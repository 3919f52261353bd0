// What a core can do at the most, for kernels to be held against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/c_api.h"

namespace onnx_iron {

// Of one instruction set; vector/limits.cc has one for each.
struct Limits {
  const char* name;
  // Multiplies and adds in registers; returns the operations that were done, each multiplication
  // and each addition one. bfloat16's products are float32's where there is no instruction of them.
  double (*float32)(int64_t steps);
  double (*bfloat16)(int64_t steps);
  // Reads all of it once; returns some sum.
  uint64_t (*read)(const void* data, size_t bytes);
};

// Of the instruction set that the loops use.
const Limits& limits();

}  // namespace onnx_iron

extern "C" {

// Multiplies and adds `steps` times; the operations that were done.
ONNX_IRON_EXPORT double onnx_iron_limit_products(bool bfloat16, int64_t steps);
// Reads all of it once; some sum of it.
ONNX_IRON_EXPORT uint64_t onnx_iron_limit_read(const void* data, size_t bytes);

}  // extern "C"
