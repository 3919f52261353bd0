// bfloat16 functions of one operand as tables of all 65,536 results.
#pragma once

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/functions.h"

namespace onnx_iron {

// The 65,536 results by the operand's bits, each function.exact rounded to float32, then to
// bfloat16. Made at the first call for a function, kept for the life of the process.
const bf16* table_of(const UnaryFunction& function);

}  // namespace onnx_iron
