// Checks of weights in codes, as MatMulNBits and GatherBlockQuantized have them.
#pragma once

#include "kernels/cpu/checks.h"
#include "kernels/cpu/loops.h"

namespace onnx_iron {

// What is known of a matrix of `rows` rows, `width` elements in each, in codes; its pointers are a
// call's. `first` is the number of the input with the codes, `zeros` that of the zero points, which
// the scales are before.
class CodedWeight {
 public:
  CodedWeight(const Node& node, size_t first, size_t zeros, DType real, int64_t rows, int64_t width)
      : first_(first), zeros_(zeros), has_zeros_(node.has_input(zeros)) {
    of_.bits = node.attributes.integer("bits", 4);
    require(of_.bits == 4 || of_.bits == 8, node, "bits is ", of_.bits, ", expected 4 or 8");
    of_.block = node.attributes.integer("block_size");
    const bool power = of_.block >= 16 && (of_.block & (of_.block - 1)) == 0;
    require(power && of_.block <= 1 << 20, node, "block_size is ", of_.block,
            ", expected a power of two of at least 16");
    of_.blocks = (width + of_.block - 1) / of_.block;
    check_dtype(node, "codes", node.inputs[first], {DType::kUInt8});
    check_dtype(node, "scales", node.inputs[zeros - 1], {real});
    check_elements(node, "scales", node.inputs[zeros - 1], rows * of_.blocks);
    of_.real_zeros = false;
    if (!has_zeros_) return;
    const Operand& given = node.inputs[zeros];
    check_dtype(node, "zero_points", given, {DType::kUInt8, real});
    of_.real_zeros = given.dtype == real;
    const int64_t in_row = of_.real_zeros ? of_.blocks : (of_.blocks * of_.bits + 7) / 8;
    check_elements(node, "zero_points", given, rows * in_row);
  }

  // Bytes of a row of whole blocks.
  int64_t row_bytes() const { return of_.blocks * of_.block * of_.bits / 8; }
  int64_t bits() const { return of_.bits; }
  int64_t block() const { return of_.block; }
  int64_t blocks() const { return of_.blocks; }

  Codes at(const Buffers& buffers) const {
    Codes codes = of_;
    codes.codes = static_cast<const uint8_t*>(buffers.inputs[first_]);
    codes.scales = buffers.inputs[zeros_ - 1];
    codes.zeros = input_or_null(buffers, has_zeros_, zeros_);
    return codes;
  }

 private:
  static void check_elements(const Node& node, const char* name, const Operand& operand,
                             int64_t expected) {
    require(element_count(operand.shape) == expected, node, name, " has shape ",
            text_of(operand.shape), ", expected ", expected, " elements");
  }

  Codes of_{};
  size_t first_, zeros_;
  bool has_zeros_;
};

}  // namespace onnx_iron
