// Functions of one and of two operands, element by element, as the struct of each in functions/
// gives them (vector/function.h) for one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_iron {

// out[i] = f(x[i]) for n elements; out may be x.
using UnaryLoop = void (*)(const void* x, void* out, int64_t n);

// out[i] = f(a[i], b[i]); a_one: a has one element, for all i. out may be a or b.
using BinaryLoop = void (*)(const void* a, bool a_one, const void* b, bool b_one, void* out,
                            int64_t n);

struct UnaryFunction {
  const char* name;         // the op's
  const char* attribute;    // what chooses among the op's functions; null where it has one
  const char* choice;       // the attribute's value that means this one
  const char* epilogue;     // its name as ProjectionGEMM's epilogue; null where it is none
  double (*exact)(double);  // null where bfloat16 takes the loop and not a table
  UnaryLoop float32, bfloat16;
};

struct BinaryFunction {
  const char* name;
  bool divides;                // of integers: no element of b may be 0
  const char* zero_attribute;  // what its nodes may not set to anything but 0; or null
  // Null for dtypes that it does not take.
  BinaryLoop float32, bfloat16, int32, int64;
};

// What one file of functions/ holds.
struct FunctionFile {
  const UnaryFunction* unary;
  size_t unary_count;
  const BinaryFunction* binary;
  size_t binary_count;
};

}  // namespace onnx_iron
