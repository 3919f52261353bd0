// bfloat16 functions of one operand as tables of all 65,536 results.
#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/loops.h"

namespace onnx_iron {

// Whether op's bfloat16 kernel is a table: it takes more than an instruction or two.
bool has_table(UnaryOp op);

// The 65,536 results by the operand's bits, each the float64 formula rounded to float32, then to
// bfloat16. Made at the first call for an op, kept for the life of the process.
const bf16* table_of(UnaryOp op);

}  // namespace onnx_iron
