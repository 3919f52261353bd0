// Kernels for C: what Python calls through ctypes, and what reads a node from C structs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ONNX_IRON_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OnnxIronAttribute {
  const char* name;
  int32_t kind;  // 0 integer, 1 real, 2 text, 3 integers
  int64_t integer;
  float real;
  const char* text;
  const int64_t* integers;
  size_t count;
} OnnxIronAttribute;

typedef struct OnnxIronOperand {
  int32_t dtype;  // ONNX's TensorProto.DataType; 0 = omitted
  int32_t rank;
  const int64_t* shape;
} OnnxIronOperand;

// Functions that return an int: 0 on success; else the message is in `error`, cut to its capacity
// and ended by a NUL.

ONNX_IRON_EXPORT int onnx_iron_kernel_create(const char* op, const OnnxIronOperand* inputs,
                                             size_t n_inputs, const OnnxIronOperand* outputs,
                                             size_t n_outputs, const OnnxIronAttribute* attributes,
                                             size_t n_attributes, void** kernel, char* error,
                                             size_t capacity);

// threads 1 runs on the caller's; with more, the kernel gets threads of its own, which it keeps for
// its next run. Concurrent runs of one kernel take turns.
ONNX_IRON_EXPORT int onnx_iron_kernel_run(void* kernel, const void* const* inputs,
                                          void* const* outputs, size_t threads, char* error,
                                          size_t capacity);

ONNX_IRON_EXPORT void onnx_iron_kernel_destroy(void* kernel);

// Separated by newlines.
ONNX_IRON_EXPORT const char* onnx_iron_kernel_names(void);

// "avx512", "avx2" or "portable": the instruction set that the loops use. Null where the
// environment variable ONNX_IRON_CPU names none that this CPU runs.
ONNX_IRON_EXPORT const char* onnx_iron_cpu_path(void);

#ifdef __cplusplus
}  // extern "C"

#include "kernels/cpu/kernel.h"

namespace onnx_iron {

// Throws std::invalid_argument for an attribute of no known kind.
Node node_from_c(const char* op, const OnnxIronOperand* inputs, size_t n_inputs,
                 const OnnxIronOperand* outputs, size_t n_outputs,
                 const OnnxIronAttribute* attributes, size_t n_attributes);

}  // namespace onnx_iron
#endif
