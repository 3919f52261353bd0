// bfloat16 functions of one operand as tables of all 65,536 results.
#include "kernels/cpu/tables.h"

#include <array>
#include <cmath>
#include <memory>
#include <mutex>

namespace onnx_iron {
namespace {

constexpr int kValues = 65536;

double evaluate(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::kExp:
      return std::exp(x);
    case UnaryOp::kErf:
      return std::erf(x);
    case UnaryOp::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryOp::kTanh:
      return std::tanh(x);
    case UnaryOp::kSiLU:
      return x / (1 + std::exp(-x));
    case UnaryOp::kGELU:
      // erfc, for 1 + erf cancels in the lower tail; likewise the logistic form of 1 + tanh.
      return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
    default:
      return x / (1 + std::exp(-1.5957691216057307117 * (x + 0.044715 * x * x * x)));
  }
}

}  // namespace

bool has_table(UnaryOp op) { return op >= UnaryOp::kExp; }

const bf16* table_of(UnaryOp op) {
  constexpr int kOps = static_cast<int>(UnaryOp::kGELUTanh) + 1;
  static std::array<std::once_flag, kOps> made;
  static std::array<std::unique_ptr<bf16[]>, kOps> tables;
  const int index = static_cast<int>(op);
  std::call_once(made[index], [&] {
    auto table = std::make_unique<bf16[]>(kValues);
    for (int bits = 0; bits < kValues; ++bits) {
      const double x = widen_one(bf16{static_cast<uint16_t>(bits)});
      table[bits] = narrow_to_bf16(static_cast<float>(evaluate(op, x)));
    }
    tables[index] = std::move(table);
  });
  return tables[index].get();
}

}  // namespace onnx_iron
